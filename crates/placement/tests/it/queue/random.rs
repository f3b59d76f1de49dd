//! The queue and the model agree on every history.

use gangway_model::Timestamp;
use gangway_placement::framework::Help;
use gangway_placement::ids::PodId;
use gangway_placement::queue::{Popped, Settings};
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use super::judge::{FIT, Table};
use super::model::{Given, Model};
use super::run::{PODS, Played, Run, SHAPES, Step, settings, steps, tables};

fn given(popped: &Popped) -> Given {
    let Popped { pod, attempts, from_backoff, was_flushed, first_active_at, rejected_by, .. } = *popped;
    (pod, attempts, from_backoff, was_flushed, first_active_at, rejected_by)
}

fn agree(settings: Settings, table: Table, steps: &[Step]) -> Result<(), TestCaseError> {
    let mut model = Model::new(settings, table.clone());
    let mut run = Run::new(settings, table);
    for (number, step) in steps.iter().enumerate() {
        let played = run.play(step);
        let expected = model.play(&played, run.now, &run.table);
        if let Played::Popped(popped) = &played {
            prop_assert_eq!(popped.as_ref().map(given), expected, "step {}, {:?}", number, step);
        }
        prop_assert_eq!(run.queue.check(), Ok(()), "step {}, {:?}", number, step);
        for pod in (0..PODS).map(PodId) {
            prop_assert_eq!(
                run.queue.standing(pod),
                model.standing(pod),
                "step {}, {:?}, {:?}",
                number,
                step,
                pod
            );
        }
        prop_assert_eq!(run.queue.counts(), model.counts(), "step {}, {:?}", number, step);
        let deadline: Option<Timestamp> = run.queue.next_deadline();
        prop_assert_eq!(deadline, model.next_deadline(), "step {}, {:?}", number, step);
        prop_assert_eq!(run.queue.is_poppable(), model.is_poppable(), "step {}, {:?}", number, step);
        prop_assert_eq!(run.queue.take_appeared(), model.take_appeared(), "step {}, {:?}", number, step);
    }
    Ok(())
}

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, max_shrink_iters: 2_000, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config(2_000))]

    #[test]
    fn the_queue_does_what_the_model_does(settings in settings(), table in tables(), steps in steps()) {
        agree(settings, table, &steps)?;
    }
}

proptest! {
    #![proptest_config(config(500))]

    /// Seldom by chance: many equal pods wait without a penalty while events have room for few of them.
    #[test]
    fn the_queue_does_what_the_model_does_where_turns_are_scarce(
        settings in settings(), table in tables(), steps in steps(),
    ) {
        let room_for_one = Help::AfterBackoff { at_most: 1 };
        let table = (0..SHAPES).fold(table.wakes(FIT, &["NodeAdd"]), |table, shape| {
            table.help("NodeAdd", shape, FIT, room_for_one)
        });
        agree(settings, table, &[all_park(), steps].concat())?;
    }
}

/// Every pod was rejected, and every penalty is over.
fn all_park() -> Vec<Step> {
    let park = |pod| {
        let add = Step::Add { pod, shape: pod % 2, priority: 0, created: 0 };
        let reject = Step::Reject { attempt: 0, fit: true, taints: false, pending: false };
        [add, Step::Pop, reject]
    };
    (0..PODS).flat_map(park).chain([Step::Pass(2_000), Step::NodeAdded]).collect()
}
