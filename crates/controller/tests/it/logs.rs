//! How much is logged: nothing of what goes well, whatever is asked for short of debugging.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::world::World;

/// Counts lines by whether the default level has them.
#[derive(Default)]
struct Lines {
    usual: AtomicUsize,
    informing: AtomicUsize,
}

struct Counter(Arc<Lines>);

impl Subscriber for Counter {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::INFO && metadata.target().starts_with("gangway")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let is_usual = *event.metadata().level() <= Level::WARN;
        let lines = if is_usual { &self.0.usual } else { &self.0.informing };
        lines.fetch_add(1, Ordering::Relaxed);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[tokio::test(start_paused = true)]
async fn a_job_that_goes_well_is_not_worth_a_line() {
    const JOBS: usize = 20;
    let lines = Arc::<Lines>::default();
    let _counting = tracing::subscriber::set_default(Counter(Arc::clone(&lines)));
    let world = World::new().await;
    let story = async {
        for number in 0..JOBS {
            world.submit(&format!("job-{number}")).await;
        }
        world.let_pods_finish();
        world.complete(JOBS).await;
    };
    tokio::select! {
        () = story => {}
        () = world.cluster() => {}
        () = world.controller(world.server.client()) => {}
    }
    let counted = (lines.usual.load(Ordering::Relaxed), lines.informing.load(Ordering::Relaxed));
    assert_eq!(counted, (0, 0), "lines by default, and with level info");
    tracing::warn!(target: "gangway_controller", "it counts");
    assert_eq!(lines.usual.load(Ordering::Relaxed), 1);
}
