//! `gangway install`, `upgrade` and `uninstall`: Gangway on a cluster.
//!
//! | question | file |
//! |---|---|
//! | how is an object found, applied, deleted? | `cluster.rs` |
//! | what is installed already? | `found.rs` |
//! | does another system work here, and what if it does? | `others.rs` |
//! | what is taken away, and in which order? | `removal.rs` |

mod cluster;
mod found;
mod others;
mod removal;

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use gangway_api::config::Configuration;
use gangway_api::install::{self, CONFIGURATION_KEY, CONTROLLER, Object, Settings, Stage};
use gangway_api::policies;

use self::cluster::Cluster;
use self::found::Found;
use super::{config, print};
use crate::clock::SystemClock;
use crate::connect::Connection;
use crate::exit::{Exit, Failure, Outcome};
use gangway_controller::doctor::OLDEST_MINOR;
pub use removal::{UninstallArgs, uninstall};

/// What to install.
#[derive(Debug, Args)]
pub struct Wishes {
    /// The namespace; otherwise that of the configuration file, or gangway-system.
    #[arg(long, value_name = "NAME")]
    namespace: Option<String>,
    /// The image of the pods; see Containerfile.
    #[arg(long, value_name = "IMAGE")]
    image: Option<String>,
    /// How many controllers there are, of which one works [default: 2].
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(i32).range(1..=9))]
    replicas: Option<i32>,
    /// The configuration file of the controller (kind Configuration of config.kueue.x-k8s.io).
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Installs the pod scheduler too, for pods with `schedulerName: gangway`.
    #[arg(long)]
    with_scheduler: bool,
    /// Has the Prometheus operator read the metrics.
    #[arg(long)]
    service_monitor: bool,
    /// Says what would be done, and does nothing.
    #[arg(long)]
    dry_run: bool,
    /// Works although another system is there that uses the same API, and takes over what it has; users' objects stay.
    #[arg(long)]
    take_over: bool,
}

/// A form of output that is not progress.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Form {
    /// All objects, for `kubectl apply --server-side -f -`.
    Yaml,
}

/// Arguments of `gangway install`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gangway install --image registry.example/gangway:1     on the cluster of your kubeconfig
  gangway install --dry-run                              what would be done
  gangway install -o yaml                                the same as a file, without a cluster
  gangway install --take-over                            in place of Kueue, with its queues and Jobs")]
pub struct InstallArgs {
    #[command(flatten)]
    wishes: Wishes,
    /// Prints everything instead; asks no cluster.
    #[arg(short, long, value_name = "FORM", conflicts_with_all = ["dry_run", "take_over"])]
    output: Option<Form>,
    /// With -o: the minor version of Kubernetes; before 36 there are no admission policies.
    #[arg(long, value_name = "MINOR", default_value_t = policies::FIRST_MINOR, requires = "output")]
    kubernetes_minor: u32,
    #[command(flatten)]
    connection: Connection,
}

/// Arguments of `gangway upgrade`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gangway upgrade                          to this version, with the configuration that is there
  gangway upgrade --config gangway.yaml    with another one")]
pub struct UpgradeArgs {
    #[command(flatten)]
    wishes: Wishes,
    #[command(flatten)]
    connection: Connection,
}

/// Installs, or prints what would be installed.
pub async fn run(args: InstallArgs) -> Outcome {
    if let Some(Form::Yaml) = args.output {
        let settings = Settings { kubernetes_minor: args.kubernetes_minor, ..settings(&args.wishes, None)? };
        let objects = install::objects(&settings);
        let yaml = install::yaml(&objects)
            .map_err(|error| Failure::broken(format!("the objects cannot be written: {error}")))?;
        print(&yaml)?;
        return Ok(Exit::Success);
    }
    let (cluster, minor) = connect(&args.connection, args.wishes.dry_run).await?;
    let found = Found::look(&cluster).await?;
    let settings = Settings { kubernetes_minor: minor, ..settings(&args.wishes, found.as_ref())? };
    put(&cluster, &settings, &args.wishes, found.is_some()).await
}

/// Brings what is installed to this version.
pub async fn upgrade(args: UpgradeArgs) -> Outcome {
    let (cluster, minor) = connect(&args.connection, args.wishes.dry_run).await?;
    let Some(found) = Found::look(&cluster).await? else {
        return Err(Failure::bad_input(
            "Gangway is not installed on this cluster: there is nothing to upgrade",
        )
        .try_this("gangway install"));
    };
    let settings = Settings { kubernetes_minor: minor, ..settings(&args.wishes, Some(&found))? };
    put(&cluster, &settings, &args.wishes, true).await
}

/// A cluster that is new enough, and its minor version.
async fn connect(connection: &Connection, dry_run: bool) -> Result<(Cluster, u32), Failure> {
    let client = connection.client("install").await?;
    let version = client
        .apiserver_version()
        .await
        .map_err(|error| super::api_failure("ask for the version of Kubernetes", &error))?;
    let minor: String = version.minor.chars().take_while(char::is_ascii_digit).collect();
    let minor = minor.parse().unwrap_or(policies::FIRST_MINOR);
    if minor < OLDEST_MINOR {
        let message =
            format!("this is Kubernetes {}; Gangway needs 1.{OLDEST_MINOR} or later", version.git_version);
        return Err(Failure::unsupported(message)
            .try_this("gangway run FILE    works on one machine without a cluster"));
    }
    Ok((Cluster { client, dry_run }, minor))
}

/// What is wished for, and where nothing is said what is there already, or the default.
fn settings(wishes: &Wishes, found: Option<&Found>) -> Result<Settings, Failure> {
    let mut settings = match (&wishes.config, found.and_then(|found| found.configuration.as_ref())) {
        (Some(file), _) => {
            let configuration = config::load(Some(file))?;
            let text = std::fs::read_to_string(file).map_err(|error| {
                Failure::bad_input(format!("{}: cannot be read: {error}", file.display()))
            })?;
            Settings::with_configuration(text, configuration)
        }
        (None, Some(text)) => Settings::with_configuration(text.clone(), stored(text)?),
        (None, None) => {
            let namespace = wishes.namespace.as_deref().unwrap_or(install::DEFAULT_NAMESPACE);
            Settings::new(namespace)
                .map_err(|error| Failure::bad_input(error).try_this("another --namespace"))?
        }
    };
    let expected = wishes.namespace.as_ref().or(found.map(|found| &found.namespace));
    if let Some(expected) = expected.filter(|expected| **expected != settings.namespace) {
        return Err(elsewhere(expected, &settings.namespace, found.is_some()));
    }
    if let Some(found) = found.filter(|found| found.namespace != settings.namespace) {
        return Err(elsewhere(&settings.namespace, &found.namespace, true));
    }
    settings.replicas = wishes.replicas.or(found.map(|found| found.replicas)).unwrap_or(settings.replicas);
    settings.scheduler = wishes.with_scheduler || found.is_some_and(|found| found.scheduler);
    settings.service_monitor = wishes.service_monitor || found.is_some_and(|found| found.service_monitor);
    settings.image = match (&wishes.image, found) {
        (Some(image), _) => image.clone(),
        (None, Some(found)) => found.image_of_this_version()?,
        (None, None) => settings.image,
    };
    match settings.contradiction() {
        Some((message, advice)) => Err(Failure::bad_input(message).try_this(advice)),
        None => Ok(settings),
    }
}

/// The configuration that is on the cluster.
fn stored(text: &str) -> Result<Configuration, Failure> {
    let name = format!("ConfigMap {CONTROLLER}, {CONFIGURATION_KEY}");
    gangway_api::config::load(&name, text).map_err(|error| {
        Failure::bad_input(error).try_this("--config FILE with a configuration that this version reads")
    })
}

fn elsewhere(wanted: &str, there: &str, installed: bool) -> Failure {
    if installed {
        let message = format!("Gangway is installed in namespace {there}, and {wanted} was asked for");
        return Failure::bad_input(message).try_this(format!(
            "--namespace {there}, or `gangway uninstall` first; Jobs and queues stay in both cases"
        ));
    }
    Failure::bad_input(format!(
        "the configuration file is for namespace {there}, and --namespace is {wanted}"
    ))
    .try_this(format!("namespace: {wanted} in the file, or leave --namespace out"))
}

/// Refuses where it has to, and puts everything on the cluster.
async fn put(cluster: &Cluster, settings: &Settings, wishes: &Wishes, installed: bool) -> Outcome {
    let others = others::Others::look(cluster, settings).await?;
    if wishes.take_over {
        others.take_over(cluster, &SystemClock).await?;
    } else if let Some(refusal) = others.refusal(&SystemClock) {
        return Err(refusal);
    }
    if settings.kubernetes_minor < policies::FIRST_MINOR {
        say(&format!(
            "this Kubernetes has no admission policies (1.{} and later have): the controller suspends queued Jobs itself as soon \
             as it sees them (the degraded way)",
            policies::FIRST_MINOR
        ))?;
    }
    let objects = install::objects(settings);
    for object in &objects {
        put_one(cluster, object, wishes, installed).await?;
    }
    if installed {
        removal::prune(cluster, &objects).await?;
    }
    let done = if cluster.dry_run { "would be installed" } else { "is installed" };
    say(&format!(
        "Gangway {} {done} in namespace {}; `kubectl -n {} get pods` shows whether it runs",
        env!("CARGO_PKG_VERSION"),
        settings.namespace,
        settings.namespace
    ))?;
    Ok(Exit::Success)
}

async fn put_one(
    cluster: &Cluster,
    object: &Object,
    wishes: &Wishes,
    installed: bool,
) -> Result<(), Failure> {
    let keeps = match object.stage {
        // One that was there before is not ours to take away.
        Stage::Namespace => cluster.is_of_somebody_else(object).await?,
        Stage::Configuration => installed && wishes.config.is_none() && cluster.get(object).await?.is_some(),
        _ => false,
    };
    let fate = if keeps { "kept as it is" } else { cluster.apply(object).await? };
    say(&format!("{}: {fate}", cluster::title(object)))?;
    let is_definition = object.stage == Stage::Definitions && !cluster.dry_run;
    if is_definition { cluster.await_established(object.name()).await } else { Ok(()) }
}

/// One line of progress.
fn say(line: &str) -> Result<(), Failure> {
    print(&format!("{line}\n"))
}
