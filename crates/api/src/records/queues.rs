//! ClusterQueues, LocalQueues and Cohorts. This is where the spellings of both API versions meet.

use gangway_model::checks::RequiredCheck;
use gangway_model::queues::{
    BorrowWithinCohort, ClusterQueue, Cohort, FlavorQuotas, Fungibility, FungibilityPolicy,
    FungibilityPreference, LocalQueue, PreemptionPolicy, QueueingStrategy, Quota, ReclaimWithinCohort,
    ResourceGroup, StopPolicy, WithinClusterQueue,
};
use gangway_model::readiness::Timeouts;
use gangway_model::selector::{LabelSelector, Operator, Requirement};
use gangway_model::{Amount, ObjectName, Quantity};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use kube::ResourceExt;

use super::{Read, Reader, fallback, label_selector};
use crate::kueue;
use crate::time::seconds_of;

const STOP_POLICIES: &[(&str, StopPolicy)] =
    &[("None", StopPolicy::None), ("Hold", StopPolicy::Hold), ("HoldAndDrain", StopPolicy::HoldAndDrain)];

/// A ClusterQueue. With any problem the record says that it is invalid, and it admits nothing.
pub fn cluster_queue(object: &kueue::ClusterQueue) -> Read<ClusterQueue> {
    let name = object.name_any();
    let spec = &object.spec;
    let mut reader = Reader::new(format!("ClusterQueue/{name}"));
    let cohort = one_spelling(
        &mut reader,
        ("spec.cohortName", spec.cohort_name.as_ref()),
        ("spec.cohort", spec.cohort.as_ref()),
    );
    let cohort = cohort.filter(|name| !name.is_empty()).map(|name| name.as_str().into());
    let resource_groups =
        resource_groups(&mut reader, &spec.resource_groups, cohort.is_some(), Owner::ClusterQueue);
    let mut record = ClusterQueue {
        name: name.into(),
        cohort,
        fallback: fallback::strategy(&mut reader, spec.flavor_fungibility.as_ref(), &resource_groups),
        resource_groups,
        strategy: strategy(&mut reader, spec),
        namespace_selector: namespace_selector(&mut reader, spec),
        fungibility: fungibility(&mut reader, spec.flavor_fungibility.as_ref()),
        preemption: preemption(&mut reader, spec.preemption.as_ref()),
        admission_checks: admission_checks(&mut reader, spec),
        timeouts: timeouts(&mut reader, spec.wait_for_pods_ready.as_ref()),
        stop_policy: stop_policy(&mut reader, spec.stop_policy.as_deref()),
        deleting: object.metadata.deletion_timestamp.is_some(),
        invalid: None,
        not_acted_on: Vec::new(),
        not_supported: not_supported(spec),
    };
    reader.unsupported(spec.fair_sharing.is_some(), "spec.fairSharing");
    record.invalid = reader.summary();
    record.not_acted_on = reader.unsupported.iter().map(|setting| setting.path.clone()).collect();
    reader.finish(record)
}

/// What would change who is admitted, and that nobody does.
fn not_supported(spec: &kueue::ClusterQueueSpec) -> Vec<String> {
    const BY_USE: &str = "UsageBasedAdmissionFairSharing";
    let by_use = spec.admission_scope.as_ref().is_some_and(|scope| scope.admission_mode == BY_USE);
    let concurrent = spec.concurrent_admission_policy.is_some();
    [
        by_use.then(|| format!("spec.admissionScope.admissionMode is {BY_USE}; remove spec.admissionScope")),
        concurrent.then(|| {
            "spec.concurrentAdmissionPolicy is set; make the ClusterQueue again without it".to_owned()
        }),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Timeouts of a queue. One that cannot be read makes the queue inactive: nobody would expect that of the configuration.
fn timeouts(reader: &mut Reader, setting: Option<&kueue::QueueReadiness>) -> Timeouts {
    let Some(setting) = setting else { return Timeouts::default() };
    let mut seconds = |field: &str, text: Option<&String>| match seconds_of(text?) {
        Ok(seconds) => Some(seconds),
        Err(message) => {
            reader.problem(format!("spec.waitForPodsReady.{field}"), message);
            None
        }
    };
    let start_seconds = seconds("timeout", setting.timeout.as_ref());
    let recovery_seconds = seconds("recoveryTimeout", setting.recovery_timeout.as_ref());
    if start_seconds == Some(0) {
        reader.problem("spec.waitForPodsReady.timeout", "must be more than 0");
    }
    Timeouts { start_seconds, recovery_seconds }
}

/// A LocalQueue. One with an unknown stop policy is held.
pub fn local_queue(object: &kueue::LocalQueue) -> Read<LocalQueue> {
    let namespace = object.namespace().unwrap_or_default();
    let name = object.name_any();
    let mut reader = Reader::new(format!("LocalQueue/{namespace}/{name}"));
    reader.unsupported(object.spec.fair_sharing.is_some(), "spec.fairSharing");
    let record = LocalQueue {
        name: ObjectName::new(namespace.as_str(), &name),
        cluster_queue: object.spec.cluster_queue.as_deref().unwrap_or_default().into(),
        stop_policy: stop_policy(&mut reader, object.spec.stop_policy.as_deref()),
        deleting: object.metadata.deletion_timestamp.is_some(),
    };
    reader.finish(record)
}

/// A Cohort. A quota that cannot be read is zero.
pub fn cohort(object: &kueue::Cohort) -> Read<Cohort> {
    let name = object.name_any();
    let mut reader = Reader::new(format!("Cohort/{name}"));
    reader.unsupported(object.spec.fair_sharing.is_some(), "spec.fairSharing");
    let parent = object.spec.parent_name.as_deref().filter(|name| !name.is_empty()).map(Into::into);
    let resource_groups =
        resource_groups(&mut reader, &object.spec.resource_groups, parent.is_some(), Owner::Cohort);
    reader.finish(Cohort { name: name.into(), parent, resource_groups })
}

/// The value that either spelling gives; it is a problem if they differ.
fn one_spelling<'a>(
    reader: &mut Reader,
    (path, value): (&str, Option<&'a String>),
    (other_path, other): (&str, Option<&'a String>),
) -> Option<&'a String> {
    if let (Some(value), Some(other)) = (value, other)
        && value != other
    {
        reader.problem(path, format!("differs from {other_path}, which is another spelling of it"));
    }
    value.or(other)
}

fn stop_policy(reader: &mut Reader, word: Option<&str>) -> StopPolicy {
    match word {
        None | Some("") => StopPolicy::None,
        Some(word) => reader.word("spec.stopPolicy", word, STOP_POLICIES, StopPolicy::Hold),
    }
}

fn strategy(reader: &mut Reader, spec: &kueue::ClusterQueueSpec) -> QueueingStrategy {
    const WORDS: &[(&str, QueueingStrategy)] =
        &[("BestEffortFIFO", QueueingStrategy::BestEffortFifo), ("StrictFIFO", QueueingStrategy::StrictFifo)];
    match spec.queueing_strategy.as_deref() {
        None | Some("") => QueueingStrategy::BestEffortFifo,
        Some(word) => reader.word("spec.queueingStrategy", word, WORDS, QueueingStrategy::StrictFifo),
    }
}

fn namespace_selector(reader: &mut Reader, spec: &kueue::ClusterQueueSpec) -> Option<LabelSelector> {
    let selector = label_selector(spec.namespace_selector.as_ref()?);
    Some(selector.unwrap_or_else(|message| {
        reader.problem("spec.namespaceSelector", message);
        let nothing = Requirement { key: String::new(), operator: Operator::Exists, values: Vec::new() };
        LabelSelector { requirements: vec![nothing] }
    }))
}

fn fungibility(reader: &mut Reader, spec: Option<&kueue::FlavorFungibility>) -> Fungibility {
    use FungibilityPolicy::{MayStopSearch, TryNextFlavor};
    let default = Fungibility::default();
    let Some(spec) = spec else { return default };
    let path = |field: &str| format!("spec.flavorFungibility.{field}");
    let borrow: &[_] =
        &[("MayStopSearch", MayStopSearch), ("TryNextFlavor", TryNextFlavor), ("Borrow", MayStopSearch)];
    let preempt: &[_] =
        &[("TryNextFlavor", TryNextFlavor), ("MayStopSearch", MayStopSearch), ("Preempt", MayStopSearch)];
    let preference: &[_] = &[
        ("BorrowingOverPreemption", FungibilityPreference::BorrowingOverPreemption),
        ("PreemptionOverBorrowing", FungibilityPreference::PreemptionOverBorrowing),
    ];
    let mut read = |field: &str, word: &Option<String>, words, default| match word.as_deref() {
        None | Some("") => default,
        Some(word) => reader.word(&path(field), word, words, default),
    };
    let when_can_borrow = read("whenCanBorrow", &spec.when_can_borrow, borrow, default.when_can_borrow);
    let when_can_preempt = read("whenCanPreempt", &spec.when_can_preempt, preempt, default.when_can_preempt);
    let preference = match spec.preference.as_deref() {
        None | Some("") => default.preference,
        Some(word) => reader.word(&path("preference"), word, preference, default.preference),
    };
    if spec.preference.as_deref().is_some_and(|word| !word.is_empty())
        && (when_can_borrow, when_can_preempt) != (TryNextFlavor, TryNextFlavor)
    {
        reader.problem(path("preference"), "needs whenCanBorrow and whenCanPreempt to be TryNextFlavor");
    }
    Fungibility { when_can_borrow, when_can_preempt, preference }
}

const RECLAIM: &[(&str, ReclaimWithinCohort)] = &[
    ("Never", ReclaimWithinCohort::Never),
    ("LowerPriority", ReclaimWithinCohort::LowerPriority),
    ("Any", ReclaimWithinCohort::Any),
    ("ReclaimFromAny", ReclaimWithinCohort::Any),
    ("ReclaimAny", ReclaimWithinCohort::Any),
    ("Always", ReclaimWithinCohort::Any),
    ("ReclaimFromLowerPriority", ReclaimWithinCohort::LowerPriority),
    ("LowerPriorityOnly", ReclaimWithinCohort::LowerPriority),
];
const WITHIN_QUEUE: &[(&str, WithinClusterQueue)] = &[
    ("Never", WithinClusterQueue::Never),
    ("LowerPriority", WithinClusterQueue::LowerPriority),
    ("LowerOrNewerEqualPriority", WithinClusterQueue::LowerOrNewerEqualPriority),
    ("LowerPriorityOnly", WithinClusterQueue::LowerPriority),
];
const BORROW: &[(&str, bool)] = &[("Never", false), ("LowerPriority", true), ("LowerPriorityOnly", true)];

fn preemption(reader: &mut Reader, spec: Option<&kueue::Preemption>) -> PreemptionPolicy {
    let Some(spec) = spec else { return PreemptionPolicy::default() };
    let mut reclaim = |field: &str, word: &Option<String>| {
        let word = word.as_deref().filter(|word| !word.is_empty())?;
        let path = format!("spec.preemption.{field}");
        Some(reader.word(&path, word, RECLAIM, ReclaimWithinCohort::Never))
    };
    let spelt = reclaim("reclaimWithinCohort", &spec.reclaim_within_cohort);
    let otherwise = reclaim("withinCohort", &spec.within_cohort);
    if spelt.is_some() && otherwise.is_some() && spelt != otherwise {
        let message = "differs from spec.preemption.reclaimWithinCohort, which is another spelling of it";
        reader.problem("spec.preemption.withinCohort", message);
    }
    let within_cluster_queue = match spec.within_cluster_queue.as_deref() {
        None | Some("") => WithinClusterQueue::Never,
        Some(word) => {
            reader.word("spec.preemption.withinClusterQueue", word, WITHIN_QUEUE, WithinClusterQueue::Never)
        }
    };
    let borrow = spec.borrow_within_cohort.as_ref();
    let borrows = match borrow.and_then(|b| b.policy.as_deref()) {
        None | Some("") => false,
        Some(word) => reader.word("spec.preemption.borrowWithinCohort.policy", word, BORROW, false),
    };
    let max_priority = borrow.and_then(|b| b.max_priority_threshold);
    let reclaim_within_cohort = spelt.or(otherwise).unwrap_or_default();
    if borrows && reclaim_within_cohort == ReclaimWithinCohort::Never {
        let message = "needs a spec.preemption.reclaimWithinCohort other than Never";
        reader.problem("spec.preemption.borrowWithinCohort", message);
    }
    PreemptionPolicy {
        within_cluster_queue,
        reclaim_within_cohort,
        borrow_within_cohort: if borrows {
            BorrowWithinCohort::LowerPriority { max_priority }
        } else {
            BorrowWithinCohort::Never
        },
    }
}

fn admission_checks(reader: &mut Reader, spec: &kueue::ClusterQueueSpec) -> Vec<RequiredCheck> {
    let strategy =
        spec.admission_checks_strategy.as_ref().map(|strategy| strategy.admission_checks.as_slice());
    if strategy.is_some_and(|checks| !checks.is_empty()) && !spec.admission_checks.is_empty() {
        reader.problem("spec.admissionChecks", "excludes spec.admissionChecksStrategy, its other spelling");
    }
    let plain = spec
        .admission_checks
        .iter()
        .map(|name| RequiredCheck { name: name.as_str().into(), on_flavors: Vec::new() });
    let with_flavors = strategy.unwrap_or_default().iter().map(|check| RequiredCheck {
        name: check.name.as_str().into(),
        on_flavors: check.on_flavors.iter().map(|flavor| flavor.as_str().into()).collect(),
    });
    with_flavors.chain(plain).collect()
}

/// Who has a quota.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner {
    ClusterQueue,
    Cohort,
}

impl Owner {
    /// The field that names the cohort above.
    const fn parent_field(self) -> &'static str {
        match self {
            Self::ClusterQueue => "spec.cohortName",
            Self::Cohort => "spec.parentName",
        }
    }
}

fn resource_groups(
    reader: &mut Reader,
    groups: &[kueue::ResourceGroup],
    has_parent: bool,
    owner: Owner,
) -> Vec<ResourceGroup> {
    let mut read = Vec::with_capacity(groups.len());
    for (index, group) in groups.iter().enumerate() {
        let path = format!("spec.resourceGroups[{index}]");
        let resources = group.covered_resources.iter().map(|name| name.as_str().into()).collect();
        let mut flavors = Vec::with_capacity(group.flavors.len());
        for (index, flavor) in group.flavors.iter().enumerate() {
            let path = format!("{path}.flavors[{index}]");
            if !flavor.resources.iter().map(|quota| &quota.name).eq(&group.covered_resources) {
                reader.problem(format!("{path}.resources"), "must name coveredResources in the same order");
            }
            let quota = |name: &String| flavor.resources.iter().position(|quota| quota.name == *name);
            let quotas = group.covered_resources.iter().map(|name| match quota(name) {
                Some(position) => {
                    let path = format!("{path}.resources[{position}]");
                    resource_quota(reader, &flavor.resources[position], &path, has_parent, owner)
                }
                None => Quota::default(),
            });
            flavors.push(FlavorQuotas { flavor: flavor.name.as_str().into(), quotas: quotas.collect() });
        }
        read.push(ResourceGroup { resources, flavors });
    }
    unique_across_groups(reader, groups);
    read
}

fn unique_across_groups(reader: &mut Reader, groups: &[kueue::ResourceGroup]) {
    let mut resources = std::collections::BTreeSet::new();
    let mut flavors = std::collections::BTreeSet::new();
    for (index, group) in groups.iter().enumerate() {
        for name in group.covered_resources.iter().filter(|name| !resources.insert(name.as_str())) {
            let path = format!("spec.resourceGroups[{index}].coveredResources");
            reader.problem(path, format!("{name} is covered more than once"));
        }
        for flavor in group.flavors.iter().filter(|flavor| !flavors.insert(flavor.name.as_str())) {
            let path = format!("spec.resourceGroups[{index}].flavors");
            reader.problem(path, format!("{} is listed more than once", flavor.name));
        }
    }
}

fn resource_quota(
    reader: &mut Reader,
    quota: &kueue::ResourceQuota,
    path: &str,
    has_parent: bool,
    owner: Owner,
) -> Quota {
    let mut amount = |field: &str, quantity: &ApiQuantity| match Quantity::parse_non_negative(&quantity.0) {
        Ok(parsed) => Amount::of_quota(parsed, &quota.name),
        Err(error) => {
            reader.problem(format!("{path}.{field}"), error.to_string());
            Amount::ZERO
        }
    };
    let nominal = amount("nominalQuota", &quota.nominal_quota);
    let borrowing_limit = quota.borrowing_limit.as_ref().map(|limit| amount("borrowingLimit", limit));
    let lending_limit = quota.lending_limit.as_ref().map(|limit| amount("lendingLimit", limit));
    let limits = [("borrowingLimit", borrowing_limit), ("lendingLimit", lending_limit)];
    for (field, _) in limits.iter().filter(|(_, limit)| limit.is_some() && !has_parent) {
        let message = format!("needs a cohort; set {}, or leave the limit out", owner.parent_field());
        reader.problem(format!("{path}.{field}"), message);
    }
    // A Cohort may lend more than it has of its own, since its members add to it.
    if owner == Owner::ClusterQueue && lending_limit.is_some_and(|limit| limit > nominal) {
        reader.problem(format!("{path}.lendingLimit"), "must be at most nominalQuota");
    }
    Quota { nominal, borrowing_limit, lending_limit }
}
