//! What of the scheduler's configuration file is supported, and the configuration that it gives.

use std::time::Duration;

use gangway_model::scheduling::ProfileSettings;

use super::file::{ClientConnection, File, Plugins, Profile};
use super::{DEFAULT_SCHEDULER_NAME, SchedulerConfiguration, args, default_election, plugins};
use crate::config::{LeaderElection, Refusals};
use crate::strict::{Finding, item_path};

/// The configuration that a file gives, or all that is wrong with it.
pub(super) fn effective(file: &File) -> Result<SchedulerConfiguration, Vec<Finding>> {
    let mut refusals = Refusals::default();
    let mut configuration = SchedulerConfiguration::of_a_file();
    parallelism(file, &mut configuration, &mut refusals);
    backoff(file, &mut configuration, &mut refusals);
    leader_election(file, &mut configuration, &mut refusals);
    if let Some(client) = &file.client_connection {
        client_connection(client, &mut configuration, &mut refusals);
    }
    configuration.settings.profiles = profiles(file, &mut refusals);
    refusals.switch("enableProfiling", file.enable_profiling, false);
    refusals.switch("enableContentionProfiling", file.enable_contention_profiling, false);
    refusals.switch("delayCacheUntilActive", file.delay_cache_until_active, false);
    refusals.list("extenders", file.extenders.as_ref());
    if refusals.0.is_empty() { Ok(configuration) } else { Err(refusals.0) }
}

/// A number that is more than 0 and that the reference could hold.
fn positive(path: &str, number: Option<i64>, refusals: &mut Refusals) -> Option<u32> {
    let most = i32::MAX.unsigned_abs();
    let read = u32::try_from(number?).ok().filter(|number| (1..=most).contains(number));
    if read.is_none() {
        refusals.refuse(path, format!("must be 1 to {most}"));
    }
    read
}

fn parallelism(file: &File, configuration: &mut SchedulerConfiguration, refusals: &mut Refusals) {
    configuration.parallelism = positive("parallelism", file.parallelism, refusals);
}

fn backoff(file: &File, configuration: &mut SchedulerConfiguration, refusals: &mut Refusals) {
    let settings = &mut configuration.settings;
    let seconds = |seconds: u32| Duration::from_secs(u64::from(seconds));
    if let Some(initial) = positive("podInitialBackoffSeconds", file.pod_initial_backoff_seconds, refusals) {
        settings.initial_backoff = seconds(initial);
    }
    if let Some(most) = positive("podMaxBackoffSeconds", file.pod_max_backoff_seconds, refusals) {
        settings.max_backoff = seconds(most);
    }
    if settings.max_backoff < settings.initial_backoff {
        let (most, initial) = (settings.max_backoff.as_secs(), settings.initial_backoff.as_secs());
        // What is said of the one that stands in the file can be found there.
        match file.pod_max_backoff_seconds {
            Some(_) => refusals.refuse(
                "podMaxBackoffSeconds",
                format!("must not be less than podInitialBackoffSeconds, which is {initial}"),
            ),
            None => refusals.refuse(
                "podInitialBackoffSeconds",
                format!("must not be more than podMaxBackoffSeconds, which is {most}"),
            ),
        }
    }
}

/// On unless it is switched off, as in the reference: a file is written for a scheduler that may have a twin.
fn leader_election(file: &File, configuration: &mut SchedulerConfiguration, refusals: &mut Refusals) {
    let Some(election) = &file.leader_election else { return };
    let read = LeaderElection::read(election, default_election());
    match read {
        Ok(read) => configuration.leader_election = election.leader_elect.unwrap_or(true).then_some(read),
        Err((field, message)) => refusals.refuse(format!("leaderElection.{field}"), message),
    }
}

fn client_connection(
    client: &ClientConnection,
    configuration: &mut SchedulerConfiguration,
    refusals: &mut Refusals,
) {
    const JSON: &str = "application/json";
    let kubeconfig = client.kubeconfig.as_deref().filter(|file| !file.is_empty());
    configuration.kubeconfig = kubeconfig.map(Into::into);
    for (field, kind) in
        [("contentType", &client.content_type), ("acceptContentTypes", &client.accept_content_types)]
    {
        if kind.as_deref().is_some_and(|kind| !kind.is_empty() && kind != JSON) {
            refusals.refuse(
                format!("clientConnection.{field}"),
                format!("is not supported yet; only {JSON:?} is: leave it out"),
            );
        }
    }
    if let Some(qps) = client.qps {
        if qps.is_nan() || qps <= 0.0 {
            refusals.refuse("clientConnection.qps", "must be more than 0");
        }
        configuration.requests_per_second = qps;
    }
    if let Some(burst) = positive("clientConnection.burst", client.burst, refusals) {
        configuration.request_burst = burst;
    }
}

/// The profiles; a file without any has the default one.
fn profiles(file: &File, refusals: &mut Refusals) -> Vec<ProfileSettings> {
    let global = percentage("percentageOfNodesToScore", file.percentage_of_nodes_to_score, refusals);
    let none = [Profile::default()];
    let written = file.profiles.as_deref().filter(|profiles| !profiles.is_empty()).unwrap_or(&none);
    let mut read: Vec<ProfileSettings> = Vec::new();
    for (index, profile) in written.iter().enumerate() {
        let path = item_path("profiles", index);
        let name = profile.scheduler_name.as_deref().unwrap_or_default();
        if name.is_empty() && written.len() > 1 {
            refusals.refuse(format!("{path}.schedulerName"), "must be set where there are several profiles");
        } else if read.iter().any(|before| before.scheduler_name == name) {
            refusals
                .refuse(format!("{path}.schedulerName"), format!("{name:?} is that of a profile before it"));
        }
        let name = if name.is_empty() { DEFAULT_SCHEDULER_NAME } else { name };
        let mut settings = ProfileSettings::named(name);
        let own_path = format!("{path}.percentageOfNodesToScore");
        let own = percentage(&own_path, profile.percentage_of_nodes_to_score, refusals);
        settings.percentage_of_nodes_to_score = own.or(global).filter(|percentage| *percentage > 0);
        let nothing = Plugins::default();
        let listed = profile.plugins.as_ref().unwrap_or(&nothing);
        plugins::resolve(listed, &format!("{path}.plugins"), &mut settings, refusals);
        let told = profile.plugin_config.as_deref().unwrap_or_default();
        args::read(told, &format!("{path}.pluginConfig"), &mut settings, refusals);
        read.push(settings);
    }
    read
}

fn percentage(path: &str, percentage: Option<i64>, refusals: &mut Refusals) -> Option<u8> {
    let read = u8::try_from(percentage?).ok().filter(|percentage| *percentage <= 100);
    if read.is_none() {
        refusals.refuse(path, "must be 0 to 100; 0 depends on the number of nodes");
    }
    read
}
