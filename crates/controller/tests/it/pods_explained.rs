//! What is told of a pod that waits, from its objects alone, and by whose plugins.

use std::time::Duration;

use gangway_controller::pods::{ExplainedPod, NextTry, Turn, explain_pod};
use gangway_model::scheduling::{ProfileSettings, SchedulerSettings};
use gangway_model::{ManualClock, Timestamp};
use serde_json::json;

use crate::pods::{PATIENCE, World, waits};

/// A minute after the scheduler of a test began.
const LATER: Timestamp = Timestamp::from_seconds(1_700_000_060);

async fn explained(world: &World, settings: Option<&SchedulerSettings>) -> ExplainedPod {
    let clock = ManualClock::new(LATER);
    let explained = explain_pod(world.server.client(), &clock, settings, "default", "p").await;
    explained.expect("the objects can be read").expect("there is such a pod")
}

/// A pod that is too large for the only node, and that a scheduler has told so.
async fn refused() -> World {
    let world = World::new();
    world.create_node("small", "500m").await;
    world.create_pod("p", "1", json!({})).await;
    let told = async {
        world.wait_for("p", waits).await;
        let has_event = async {
            while world.counts().events_applied == 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(PATIENCE, has_event).await.expect("an Event tells it too");
    };
    tokio::select! {
        () = world.scheduler(world.server.client()) => {}
        () = told => {}
    }
    world
}

#[tokio::test(start_paused = true)]
async fn the_next_try_is_told_from_the_condition_and_the_event() {
    let world = Box::pin(refused()).await;
    let ExplainedPod { next_try, attempts, turn, has_profile, .. } = explained(&world, None).await;
    assert_eq!((turn, has_profile), (Turn::Waits, true));
    assert_eq!(attempts.told, 1, "the Event tells of the same attempt as the condition");
    let NextTry::WhenHelped { backoff, if_not_tried_since, at_the_latest } = next_try else {
        panic!("{next_try:?}");
    };
    assert_eq!((backoff.at_least, backoff.at_most), (Duration::from_secs(1), Duration::from_secs(10)));
    assert_eq!(at_the_latest, LATER.plus_seconds(300));
    let told = attempts.last_told.expect("it was told");
    assert_eq!(if_not_tried_since, told.plus_seconds(300));
    assert!(told < LATER && attempts.refused_since <= Some(told), "{attempts:?}");
}

#[tokio::test(start_paused = true)]
async fn a_configuration_says_which_plugins_judge() {
    let world = Box::pin(refused()).await;
    let careless = ProfileSettings { filter: Vec::new(), ..ProfileSettings::default() };
    let settings = SchedulerSettings { profiles: vec![careless], ..SchedulerSettings::default() };
    let found = explained(&world, Some(&settings)).await;
    assert_eq!(found.turn, Turn::Placed("small".into()), "nothing asks for room");
    assert!(matches!(found.next_try, NextTry::AfterBackoff(_)), "{:?}", found.next_try);

    let other = SchedulerSettings {
        profiles: vec![ProfileSettings::named("other")],
        max_backoff: Duration::from_secs(60),
        ..SchedulerSettings::default()
    };
    let found = explained(&world, Some(&other)).await;
    assert_eq!((found.turn, found.has_profile), (Turn::Waits, false));
    let NextTry::WhenHelped { backoff, .. } = found.next_try else { panic!("{:?}", found.next_try) };
    assert_eq!(backoff.at_most, Duration::from_secs(60));
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_nobody_has_tried_waits_for_its_turn() {
    let world = World::new();
    world.create_node("large", "2").await;
    world.create_pod("p", "1", json!({})).await;
    assert_eq!(explained(&world, None).await.next_try, NextTry::AtItsTurn);
    world.create_pod("q", "1", json!({"schedulingGates": [{"name": "example.com/g"}]})).await;
    let clock = ManualClock::new(LATER);
    let gated = explain_pod(world.server.client(), &clock, None, "default", "q").await;
    let gated = gated.expect("the objects can be read").expect("there is such a pod");
    assert_eq!(gated.next_try, NextTry::OnceChanged);
}
