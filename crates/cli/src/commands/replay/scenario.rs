//! What is replayed: records for the engine, and when each Workload arrives.

use std::collections::{BTreeMap, BTreeSet};

use gangway_api::kueue;
use gangway_api::records::{self, Read, ResourceRules};
use gangway_model::checks::AdmissionCheck;
use gangway_model::queues::{ClusterQueue, Cohort, Flavor, LocalQueue, Namespace};
use gangway_model::selector::Labels;
use gangway_model::workload::{State, Workload};
use gangway_model::{ClusterQueueName, NamespaceName, Timestamp};
use k8s_openapi::api::core::v1 as core;
use kube::ResourceExt;

use super::documents::{Documents, HOW_TO_DUMP, Object};
use super::settings::{Located, ROUNDS_MAX, Settings};
use crate::exit::Failure;

/// In which round a Workload arrives.
const ROUND_ANNOTATION: &str = "replay.gangway.dev/round";
const NAMESPACE_NAME_LABEL: &str = "kubernetes.io/metadata.name";
/// 2026-01-01T00:00:00Z.
const USUAL_NOW: Timestamp = Timestamp::from_seconds(1_767_225_600);
/// After how many cycles the protocol gives up.
const USUAL_CYCLES_MAX: u32 = 300;
/// More cycles than this per Workload are a loop that must not be.
const CYCLES_PER_WORKLOAD: usize = 20;

/// A Workload, and when it arrives.
#[derive(Debug)]
pub struct Arrival {
    /// In which round.
    pub round: u32,
    /// The Workload.
    pub workload: Workload,
}

/// Everything that a replay needs.
#[derive(Debug)]
pub struct Scenario {
    /// What the Replay document says.
    pub settings: Settings,
    /// When it begins.
    pub now: Timestamp,
    /// After how many cycles to give up.
    pub cycles_max: u32,
    /// Namespaces, those included that are only mentioned.
    pub namespaces: BTreeMap<NamespaceName, Namespace>,
    /// Flavors.
    pub flavors: Vec<Flavor>,
    /// Cohort objects.
    pub cohorts: Vec<Cohort>,
    /// AdmissionChecks.
    pub admission_checks: Vec<AdmissionCheck>,
    /// ClusterQueues.
    pub cluster_queues: Vec<ClusterQueue>,
    /// LocalQueues.
    pub local_queues: Vec<LocalQueue>,
    /// Workloads, in the order in which those of one round arrive.
    pub arrivals: Vec<Arrival>,
    /// What somebody should know who reads the answer.
    pub notes: Vec<String>,
}

impl Scenario {
    /// What the documents describe. If `is_strict`, everything that has no effect is refused, as the replay
    /// protocol asks.
    pub fn read(documents: Documents, is_strict: bool) -> Result<Self, Failure> {
        let Documents { objects, replay, skipped } = documents;
        if objects.is_empty() {
            return Err(nothing_to_replay(&skipped));
        }
        let has_pauses = |located: &&Located| !located.settings.pauses.is_empty();
        if let Some(located) = replay.as_ref().filter(has_pauses).filter(|_| is_strict) {
            let message = format!("{}: spec.pauses: time does not pass in the protocol", located.at());
            return Err(Failure::unsupported(message).try_this("leave spec.pauses or --protocol out"));
        }
        let settings = replay.map(|located| located.settings).unwrap_or_default();
        refuse_doubles(&objects)?;
        let mut reader = Reader { is_strict, not_acted_on: BTreeMap::new() };
        let mut scenario = Self {
            now: settings.now.unwrap_or(USUAL_NOW),
            cycles_max: 0,
            settings,
            namespaces: BTreeMap::new(),
            flavors: Vec::new(),
            cohorts: Vec::new(),
            admission_checks: Vec::new(),
            cluster_queues: Vec::new(),
            local_queues: Vec::new(),
            arrivals: Vec::new(),
            notes: skipped_note(&skipped).into_iter().collect(),
        };
        for object in &objects {
            scenario.add(object, &mut reader)?;
        }
        scenario.notes.extend(reader.note());
        scenario.complete(is_strict);
        Ok(scenario)
    }

    fn add(&mut self, object: &Object, reader: &mut Reader) -> Result<(), Failure> {
        match object.kind() {
            "Namespace" => {
                let namespace = records::namespace(&object.typed::<core::Namespace>()?);
                self.namespaces.insert(namespace.name.clone(), namespace);
            }
            "ResourceFlavor" => self.flavors.push(reader.take(object, records::flavor(&object.typed()?))?),
            "Cohort" => self.cohorts.push(reader.take(object, records::cohort(&object.typed()?))?),
            "ClusterQueue" => {
                let queue = reader.take(object, records::cluster_queue(&object.typed()?))?;
                if reader.is_strict && !queue.admission_checks.is_empty() {
                    return Err(unsupported(object, "spec.admissionChecksStrategy"));
                }
                if reader.is_strict && queue.fallback.is_some() {
                    return Err(unsupported(object, "spec.flavorFungibility.fallbackStrategy"));
                }
                self.cluster_queues.push(queue);
            }
            "AdmissionCheck" => self.admission_checks.push(records::admission_check(&object.typed()?)),
            "LocalQueue" => {
                let mut queue: kueue::LocalQueue = object.typed()?;
                queue.metadata.namespace = Some(object.namespace().to_owned());
                self.local_queues.push(reader.take(object, records::local_queue(&queue))?);
            }
            _ => {
                let arrival = reader.arrival(object, &self.settings.resource_rules)?;
                self.arrivals.push(arrival);
            }
        }
        Ok(())
    }

    /// Fills in what follows from the objects as a whole.
    fn complete(&mut self, is_strict: bool) {
        let of_queues = self.local_queues.iter().map(|queue| &queue.name.namespace);
        let of_workloads = self.arrivals.iter().map(|arrival| &arrival.workload.name.namespace);
        for name in of_queues.chain(of_workloads) {
            let mentioned = || Namespace { name: name.clone(), labels: Labels::new() };
            self.namespaces.entry(name.clone()).or_insert_with(mentioned);
        }
        for namespace in self.namespaces.values_mut() {
            let name = namespace.name.to_string();
            namespace.labels.insert(NAMESPACE_NAME_LABEL.to_owned(), name);
        }
        self.arrivals.sort_by(|a, b| {
            let key = |arrival: &Arrival| (arrival.workload.created, arrival.workload.name.to_string());
            key(a).cmp(&key(b))
        });
        let many = self.arrivals.len().saturating_mul(CYCLES_PER_WORKLOAD);
        let enough = USUAL_CYCLES_MAX.saturating_add(u32::try_from(many).unwrap_or(u32::MAX));
        let usual = if is_strict { USUAL_CYCLES_MAX } else { enough };
        self.cycles_max = self.settings.cycles_max.unwrap_or(usual);
        if !is_strict && self.settings.now.is_none() {
            self.now = self.latest_time().unwrap_or(USUAL_NOW);
        }
        self.put_reservations_before_now();
        if is_strict {
            self.notes.extend(self.ties());
        }
    }

    /// The last time that the Workloads speak of. A dump was taken after it.
    fn latest_time(&self) -> Option<Timestamp> {
        let workloads = self.arrivals.iter().map(|arrival| &arrival.workload);
        workloads
            .flat_map(|workload| {
                let conditions = gangway_model::conditions::conditions(&workload.state);
                let times: Vec<Timestamp> = conditions.iter().map(|condition| condition.at).collect();
                times.into_iter().chain([workload.created])
            })
            .max()
    }

    /// Who held quota from the beginning got it before anybody who gets it in the replay.
    fn put_reservations_before_now(&mut self) {
        let reserved = |arrival: &Arrival| arrival.workload.state.reservation().map(|held| held.reserved_at);
        let Some(latest) = self.arrivals.iter().filter_map(reserved).max() else { return };
        let too_late = latest.nanos_since(self.now);
        if too_late <= 0 {
            return;
        }
        for arrival in &mut self.arrivals {
            if let State::Holding(held) | State::Evicting(held, _) = &mut arrival.workload.state {
                let nanos = held.reserved_at.as_nanos().saturating_sub(too_late);
                held.reserved_at = Timestamp::from_nanos(nanos);
            }
        }
    }

    /// The root of every ClusterQueue's tree.
    pub fn roots(&self) -> BTreeMap<ClusterQueueName, String> {
        let parents: BTreeMap<_, _> =
            self.cohorts.iter().filter_map(|cohort| Some((&cohort.name, cohort.parent.as_ref()?))).collect();
        let root = |queue: &ClusterQueue| {
            let Some(mut at) = queue.cohort.as_ref() else { return format!("queue/{}", queue.name) };
            // Cohorts may point to each other in a circle; then any of them stands for it.
            for _ in 0..parents.len() {
                at = parents.get(at).copied().unwrap_or(at);
            }
            format!("cohort/{at}")
        };
        self.cluster_queues.iter().map(|queue| (queue.name.clone(), root(queue))).collect()
    }

    /// The last round in which something happens from outside.
    pub fn last_round(&self) -> u32 {
        use super::settings::When;
        let ends = self.settings.finish.iter().map(|finish| match finish.when {
            When::Round(round) => round,
            When::Cycle(_) => 0,
        });
        let pauses = self.settings.pauses.iter().map(|pause| pause.round);
        self.arrivals.iter().map(|arrival| arrival.round).chain(ends).chain(pauses).max().unwrap_or(0)
    }

    /// Two Workloads of one tree that were created at the same time: who of them goes first is chance in the
    /// reference.
    fn ties(&self) -> Option<String> {
        let roots = self.roots();
        let queues: BTreeMap<_, _> =
            self.local_queues.iter().map(|queue| (&queue.name, &queue.cluster_queue)).collect();
        let mut seen = BTreeMap::new();
        for Arrival { workload, .. } in &self.arrivals {
            let queue = gangway_model::ObjectName::new(workload.name.namespace.clone(), &workload.queue);
            let Some(root) = queues.get(&queue).and_then(|queue| roots.get(*queue)) else { continue };
            if let Some(other) = seen.insert((root, workload.created), &workload.name) {
                return Some(format!(
                    "Workloads {other} and {} of {root} have the same creationTimestamp; who of them goes first is \
                     not defined by the protocol",
                    workload.name
                ));
            }
        }
        None
    }
}

fn nothing_to_replay(skipped: &BTreeMap<String, usize>) -> Failure {
    let instead = match counted(skipped) {
        held if held.is_empty() => String::new(),
        held => format!("; there is only {held}"),
    };
    Failure::bad_input(format!(
        "the files hold no queue and no Workload, so there is nothing to replay{instead}"
    ))
    .try_this(HOW_TO_DUMP)
}

fn skipped_note(skipped: &BTreeMap<String, usize>) -> Option<String> {
    let total: usize = skipped.values().sum();
    (total > 0)
        .then(|| format!("{total} objects are of no use for a replay and were skipped: {}", counted(skipped)))
}

/// `2 Job, 1 Node`.
fn counted(kinds: &BTreeMap<String, usize>) -> String {
    let each: Vec<String> = kinds.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    each.join(", ")
}

fn refuse_doubles(objects: &[Object]) -> Result<(), Failure> {
    let is_namespaced = |object: &Object| matches!(object.kind(), "LocalQueue" | "Workload");
    let mut seen: BTreeMap<(&str, &str, &str), &Object> = BTreeMap::new();
    for object in objects {
        let namespace = if is_namespaced(object) { object.namespace() } else { "" };
        if let Some(first) = seen.insert((object.kind(), namespace, object.name()), object) {
            let slash = if namespace.is_empty() { "" } else { "/" };
            let title = format!("{} {namespace}{slash}{}", object.kind(), object.name());
            let message = format!("{}: {title} was defined at {} already", object.at(), first.at());
            return Err(Failure::bad_input(message).try_this("keep one of them"));
        }
    }
    let mut uids: BTreeMap<String, &Object> = BTreeMap::new();
    for object in objects.iter().filter(|object| object.kind() == "Workload") {
        let uid = uid(object, &object.typed()?);
        if let Some(first) = uids.insert(uid, object) {
            let message =
                format!("is also the uid of the Workload at {}; a uid belongs to one object", first.at());
            return Err(object.error("metadata.uid", message).try_this("leave metadata.uid out"));
        }
    }
    Ok(())
}

fn uid(object: &Object, workload: &kueue::Workload) -> String {
    let written = workload.uid().filter(|uid| !uid.is_empty());
    written.unwrap_or_else(|| format!("{}/{}", object.namespace(), object.name()))
}

fn unsupported(object: &Object, setting: &str) -> Failure {
    let message = format!("{}: {setting}: is not supported yet", object.at());
    Failure::unsupported(message)
        .try_this("leave the setting out, or leave --protocol out: then it has no effect")
}

/// Turns objects into records and keeps account of what has no effect.
struct Reader {
    is_strict: bool,
    /// How many objects ask for each setting that nobody acts on.
    not_acted_on: BTreeMap<String, usize>,
}

impl Reader {
    fn take<T>(&mut self, object: &Object, read: Read<T>) -> Result<T, Failure> {
        if let Some(problem) = read.problems.first() {
            return Err(object.error(&problem.path, problem.message.as_str()));
        }
        if let Some(setting) = read.unsupported.first().filter(|_| self.is_strict) {
            return Err(unsupported(object, &setting.path));
        }
        let settings: BTreeSet<String> = read.unsupported.into_iter().map(|setting| setting.path).collect();
        for setting in settings {
            *self.not_acted_on.entry(format!("{} {setting}", object.kind())).or_default() += 1;
        }
        Ok(read.record)
    }

    fn note(&self) -> Option<String> {
        let each = self.not_acted_on.iter().map(|(setting, count)| match count {
            1 => format!("{setting} (1 object)"),
            _ => format!("{setting} ({count} objects)"),
        });
        let each: Vec<String> = each.collect();
        (!each.is_empty()).then(|| format!("not supported yet, so without effect: {}", each.join(", ")))
    }

    /// A Workload as the engine sees it, without its owner: nobody has pods to stop, so who is evicted is gone at once.
    fn arrival(&mut self, object: &Object, rules: &ResourceRules) -> Result<Arrival, Failure> {
        let mut typed: kueue::Workload = object.typed()?;
        if typed.metadata.creation_timestamp.is_none() {
            let message = "is missing; it decides who goes first";
            return Err(object.error("metadata.creationTimestamp", message).try_this(HOW_TO_DUMP));
        }
        typed.metadata.namespace = Some(object.namespace().to_owned());
        typed.metadata.uid = Some(uid(object, &typed));
        let round = round(object, &typed)?;
        let record = self.take(object, records::workload(&typed, rules))?;
        let workload = Workload { owner: None, version: 1, ..record };
        if self.is_strict {
            check_protocol(object, &typed, &workload)?;
        }
        Ok(Arrival { round, workload })
    }
}

fn round(object: &Object, workload: &kueue::Workload) -> Result<u32, Failure> {
    let Some(text) = workload.annotations().get(ROUND_ANNOTATION) else { return Ok(0) };
    text.parse().ok().filter(|round| *round <= ROUNDS_MAX).ok_or_else(|| {
        let message = format!("{ROUND_ANNOTATION} must be a number from 0 to {ROUNDS_MAX}, not {text:?}");
        object.error("metadata.annotations", message)
    })
}

/// What the protocol asks of a Workload beyond its type.
fn check_protocol(object: &Object, typed: &kueue::Workload, workload: &Workload) -> Result<(), Failure> {
    if workload.created != workload.created.whole_second() {
        return Err(object.error("metadata.creationTimestamp", "must be a whole second"));
    }
    let status = typed.status.as_ref();
    let is_true = |kind: &str| {
        let mut conditions = status.into_iter().flat_map(|status| &status.conditions);
        conditions.any(|condition| condition.type_ == kind && condition.status == "True")
    };
    let has_admission = status.is_some_and(|status| status.admission.is_some());
    let holds = [has_admission, is_true("QuotaReserved"), is_true("Admitted")];
    if holds.contains(&true) && holds.contains(&false) {
        let message = "admission and the conditions QuotaReserved=True and Admitted=True must come together";
        return Err(object.error("status", message));
    }
    Ok(())
}
