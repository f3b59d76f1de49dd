//! Sentences that hold for every trace.

use std::sync::Mutex;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestError, TestRunner};

use crate::invariants;
use crate::operations::{Operation, furnished, traces};
use crate::world::{Tally, World};

/// As many cases as `PROPTEST_CASES` says, or `usual`.
fn config(usual: u32) -> Config {
    let asked = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    Config {
        cases: asked("PROPTEST_CASES").unwrap_or(usual),
        max_shrink_iters: asked("PROPTEST_MAX_SHRINK_ITERS").unwrap_or(2_000),
        source_file: Some(file!()),
        ..Config::default()
    }
}

fn run(mut world: World, operations: &[Operation]) -> World {
    for operation in operations {
        world.step += 1;
        operation.perform(&mut world);
        invariants::check(&world);
    }
    world.step += 1;
    world.settle();
    invariants::check(&world);
    invariants::check_fixed_point(&mut world);
    world
}

#[test]
fn with_faults_everything_safe_holds_after_every_step_and_in_the_end_nothing_is_left_that_could_start() {
    let totals = Mutex::new(Tally::default());
    let traces_run = Mutex::new(0_u64);
    TestRunner::new(config(40))
        .run(&traces(240), |operations| {
            let world = run(furnished(), &operations);
            let mut totals = totals.lock().expect("no panic holds it");
            for (what, count) in world.tally.0 {
                *totals.0.entry(what).or_default() += count;
            }
            *traces_run.lock().expect("no panic holds it") += 1;
            Ok(())
        })
        .unwrap_or_else(|failure| match failure {
            TestError::Abort(why) => panic!("{why}"),
            TestError::Fail(why, operations) => panic!("{why}, after {operations:?}"),
        });
    let totals = totals.into_inner().expect("no panic held it");
    println!("{} traces: {:?}", traces_run.into_inner().expect("no panic held it"), totals.0);
    let common = [
        "admit",
        "evict",
        "release",
        "requeue",
        "finish",
        "report",
        "conflicts",
        "refused",
        "unknown",
        "reserve",
        "let start",
    ];
    for what in common {
        assert!(totals.0.get(what).copied().unwrap_or(0) > 0, "no trace had any: {what}");
    }
}

proptest! {
    #![proptest_config(config(6))]

    #[test]
    fn an_event_that_is_told_twice_changes_nothing_the_second_time(operations in traces(80)) {
        let mut world = furnished();
        world.tells_twice = true;
        run(world, &operations);
    }

    #[test]
    fn equal_events_at_equal_times_give_equal_decisions(operations in traces(160)) {
        let (first, second) = (run(furnished(), &operations), run(furnished(), &operations));
        prop_assert_eq!(first.log, second.log);
    }
}
