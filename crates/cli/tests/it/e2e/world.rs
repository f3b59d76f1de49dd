//! Where scenarios run.

use std::future::Future;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use gangway_model::Clock;
use kube::Client;

/// The nodes of every world, in the words of `gangway node --fake`: room for the pods of all scenarios at once,
/// nodes for the flavors of `second_flavor` and `two_resource_groups`, and some that scenarios label when they are to come.
pub const FAKE_NODES: &str = "count=3,cpu=1000;\
    name=first,cpu=1000,label:second-flavor=first;\
    name=second,cpu=1000,label:second-flavor=second,taint:second-flavor=spot:NoSchedule;\
    name=big,cpu=1000,example.com/gpu=8,\
    label:two-resource-groups/processors=new,label:two-resource-groups/accelerators=big;\
    name=late,count=5,cpu=1000";

/// A Kubernetes API with Gangway at work on it.
pub struct World {
    pub client: Client,
    /// What the API is, as the summary calls it.
    pub api: &'static str,
    /// How long a scenario waits for any one thing.
    pub patience: Duration,
    pub controller: Rc<dyn Controller>,
    /// With which commands reach the API.
    pub kubeconfig: PathBuf,
    /// Where the API notes every request, if it does.
    pub audit_log: Option<PathBuf>,
}

/// The admission controller of a world, which a scenario may kill and start again. What it had in memory is lost.
pub trait Controller {
    fn kill(&self) -> Result<()>;
    fn start(&self) -> Result<()>;
    /// Starts it by another clock than that of the machine.
    fn start_by(&self, clock: Arc<dyn Clock>) -> Result<()>;
    /// The configuration file with which it is started from now on.
    fn configure(&self, config: &str) -> Result<()>;

    fn restart(&self) -> Result<()> {
        self.kill()?;
        self.start()
    }

    fn restart_by(&self, clock: Arc<dyn Clock>) -> Result<()> {
        self.kill()?;
        self.start_by(clock)
    }
}

/// Runs a world on this thread; its background tasks end with it.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime can be made on any machine that runs tests");
    tokio::task::LocalSet::new().block_on(&runtime, future)
}
