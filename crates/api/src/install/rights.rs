//! What our accounts may do, and what for: one table, of which the roles and `docs/rights.md` are made.

use k8s_openapi::api::rbac::v1::{
    ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject,
};

use super::parts::{CONTROLLER, SCHEDULER};
use super::{Object, Settings, Stage, cluster_wide, metadata};
use crate::kueue::GROUP;
use crate::policies;

/// One line of the table.
#[derive(Debug)]
pub struct Right {
    /// Whose.
    pub part: &'static str,
    /// The API group, empty for core.
    pub group: &'static str,
    /// Resources, and subresources as `jobs/status`.
    pub resources: &'static [&'static str],
    /// What may be done.
    pub verbs: &'static [&'static str],
    /// Which objects.
    pub which: Which,
    /// What for.
    pub why: &'static str,
}

/// Which objects a right is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// All of the cluster.
    All,
    /// All of the cluster, before Kubernetes 1.36.
    AllOfOlder,
    /// Those with these names, from Kubernetes 1.36 on.
    Named(&'static [&'static str]),
    /// All of a kind that only Kubernetes 1.36 and later have.
    AllOfNewer,
    /// The Lease by which one is chosen: that name in our own namespace.
    Lease,
    /// Any Lease of our own namespace, since what does not exist cannot be named.
    NewLease,
}

const fn right(
    part: &'static str,
    group: &'static str,
    resources: &'static [&'static str],
    verbs: &'static [&'static str],
    which: Which,
    why: &'static str,
) -> Right {
    Right { part, group, resources, verbs, which, why }
}

const WATCH: &[&str] = &["list", "watch"];
const LEASES: &str = "coordination.k8s.io";
const POLICIES: &str = "admissionregistration.k8s.io";
/// What for: rights on kinds of other systems, which a cluster may not have.
pub const UNSUPPORTED: &str = "to warn objects with a queue name whose kind is not supported";

const SPREAD: &str = "which pods belong together and are spread by default";

/// Every right.
pub const RIGHTS: &[Right] = &[
    right(
        CONTROLLER,
        "",
        &["namespaces"],
        WATCH,
        Which::All,
        "labels of namespaces decide which Jobs are managed and may use a queue",
    ),
    right(
        CONTROLLER,
        "",
        &["pods"],
        WATCH,
        Which::All,
        "metadata of started pods tells when the quota of a deleted Job is free; to warn pods that queue for themselves",
    ),
    right(
        CONTROLLER,
        "",
        &["events"],
        &["create"],
        Which::All,
        "what happened to Jobs, Workloads and queues is told in Events",
    ),
    right(CONTROLLER, "batch", &["jobs"], WATCH, Which::All, "Jobs are what is queued"),
    right(
        CONTROLLER,
        "batch",
        &["jobs"],
        &["get"],
        Which::All,
        "before a Workload ends for lack of its Job, the Job is looked for once more",
    ),
    right(CONTROLLER, "batch", &["jobs"], &["patch"], Which::All, "to start and to suspend Jobs"),
    right(
        CONTROLLER,
        "batch",
        &["jobs/status"],
        &["patch"],
        Which::AllOfOlder,
        "the template of a Job that has run can only be restored once its start time is taken away",
    ),
    right(
        CONTROLLER,
        "batch",
        &["jobs/finalizers"],
        &["update"],
        Which::All,
        "a Workload blocks the deletion of its Job, which the admission plugin OwnerReferencesPermissionEnforcement (on in OpenShift) asks \
         for",
    ),
    right(
        CONTROLLER,
        "scheduling.k8s.io",
        &["priorityclasses"],
        WATCH,
        Which::All,
        "the priority of a Job may come from its pods",
    ),
    right(
        CONTROLLER,
        GROUP,
        &[
            "admissionchecks",
            "clusterqueues",
            "cohorts",
            "localqueues",
            "resourceflavors",
            "workloadpriorityclasses",
            "workloads",
        ],
        WATCH,
        Which::All,
        "what is decided on",
    ),
    right(
        CONTROLLER,
        GROUP,
        &["workloads"],
        &["create", "patch", "delete"],
        Which::All,
        "a Job has one Workload, which follows the Job, is deactivated, and goes when it no longer describes the Job",
    ),
    right(
        CONTROLLER,
        GROUP,
        &["workloads"],
        &["get"],
        Which::All,
        "who begins to lead reads what the one before wrote last, before it decides",
    ),
    right(CONTROLLER, GROUP, &["workloads/status"], &["patch"], Which::All, "decisions"),
    right(
        CONTROLLER,
        GROUP,
        &["clusterqueues/status", "localqueues/status"],
        &["patch"],
        Which::All,
        "whether a queue is active, and how much waits and runs",
    ),
    right(
        CONTROLLER,
        GROUP,
        &["admissionchecks", "clusterqueues", "resourceflavors"],
        &["patch"],
        Which::All,
        "the finalizer that Kueue left on what is being deleted is taken off once nobody uses it",
    ),
    right(CONTROLLER, "apps", &["deployments", "statefulsets"], WATCH, Which::All, UNSUPPORTED),
    right(CONTROLLER, "jobset.x-k8s.io", &["jobsets"], WATCH, Which::All, UNSUPPORTED),
    right(CONTROLLER, "leaderworkerset.x-k8s.io", &["leaderworkersets"], WATCH, Which::All, UNSUPPORTED),
    right(CONTROLLER, "ray.io", &["rayjobs", "rayclusters", "rayservices"], WATCH, Which::All, UNSUPPORTED),
    right(
        CONTROLLER,
        "kubeflow.org",
        &["mpijobs", "pytorchjobs", "tfjobs", "paddlejobs", "xgboostjobs", "jaxjobs"],
        WATCH,
        Which::All,
        UNSUPPORTED,
    ),
    right(CONTROLLER, "trainer.kubeflow.org", &["trainjobs"], WATCH, Which::All, UNSUPPORTED),
    right(CONTROLLER, "workload.codeflare.dev", &["appwrappers"], WATCH, Which::All, UNSUPPORTED),
    right(CONTROLLER, "sparkoperator.k8s.io", &["sparkapplications"], WATCH, Which::All, UNSUPPORTED),
    right(
        CONTROLLER,
        POLICIES,
        &policies::PLURALS,
        WATCH,
        Which::AllOfNewer,
        "to know whether the admission policies are in force",
    ),
    right(
        CONTROLLER,
        POLICIES,
        &["mutatingadmissionpolicies", "validatingadmissionpolicies"],
        &["patch"],
        Which::Named(&[policies::DEFAULT_QUEUE, policies::JOB_RULES, policies::SUSPEND]),
        "the admission policies follow the configuration",
    ),
    right(
        CONTROLLER,
        LEASES,
        &["leases"],
        &["create"],
        Which::NewLease,
        "one of several controllers is chosen",
    ),
    right(
        CONTROLLER,
        LEASES,
        &["leases"],
        &["get", "update"],
        Which::Lease,
        "one of several controllers is chosen",
    ),
    right(SCHEDULER, "", &["pods"], WATCH, Which::All, "what is placed, and what is already there"),
    right(
        SCHEDULER,
        "",
        &["pods"],
        &["get"],
        Which::All,
        "whether a binding landed whose answer got lost, and whether a victim is still there",
    ),
    right(SCHEDULER, "", &["pods"], &["delete"], Which::All, "victims of preemption"),
    right(SCHEDULER, "", &["pods/binding"], &["create"], Which::All, "to put a pod on a node"),
    right(
        SCHEDULER,
        "",
        &["pods/status"],
        &["patch"],
        Which::All,
        "why a pod waits, which node is kept for it, and who was preempted",
    ),
    right(SCHEDULER, "", &["nodes"], WATCH, Which::All, "where pods may be placed"),
    right(SCHEDULER, "", &["services", "replicationcontrollers"], WATCH, Which::All, SPREAD),
    right(SCHEDULER, "apps", &["replicasets", "statefulsets"], WATCH, Which::All, SPREAD),
    right(SCHEDULER, "policy", &["poddisruptionbudgets"], WATCH, Which::All, "who should not be preempted"),
    right(
        SCHEDULER,
        "events.k8s.io",
        &["events"],
        &["create"],
        Which::All,
        "what happened to pods is told in Events",
    ),
    right(
        SCHEDULER,
        LEASES,
        &["leases"],
        &["create"],
        Which::NewLease,
        "one of several schedulers is chosen",
    ),
    right(
        SCHEDULER,
        LEASES,
        &["leases"],
        &["get", "update"],
        Which::Lease,
        "one of several schedulers is chosen",
    ),
];

/// The Lease of a part: its namespace and name; none if nobody is chosen.
pub(super) fn lease(settings: &Settings, part: &str) -> Option<(String, String)> {
    if part == SCHEDULER {
        return Some((settings.namespace.clone(), SCHEDULER.to_owned()));
    }
    let election = settings.configuration.leader_election.as_ref()?;
    Some((election.namespace.clone(), election.name.clone()))
}

/// The roles of a part, and who has them.
pub(super) fn objects(settings: &Settings, part: &'static str) -> Vec<Object> {
    let rights = || RIGHTS.iter().filter(move |right| right.part == part);
    let older = settings.kubernetes_minor < policies::FIRST_MINOR;
    let of_cluster = rights().filter(|right| match right.which {
        Which::All => true,
        Which::AllOfOlder => older,
        Which::Named(_) | Which::AllOfNewer => !older,
        Which::Lease | Which::NewLease => false,
    });
    let role = ClusterRole {
        metadata: cluster_wide(part, part),
        rules: Some(of_cluster.map(|right| rule(right, None)).collect()),
        ..ClusterRole::default()
    };
    let binding = ClusterRoleBinding {
        metadata: cluster_wide(part, part),
        role_ref: role_ref("ClusterRole", part),
        subjects: Some(subjects(settings, part)),
    };
    let mut objects = vec![Object::new(Stage::Rights, &role), Object::new(Stage::Rights, &binding)];
    let Some((namespace, name)) = lease(settings, part) else { return objects };
    let of_lease = rights().filter(|right| matches!(right.which, Which::Lease | Which::NewLease));
    let mut metadata = metadata(settings, part, part);
    metadata.namespace = Some(namespace);
    let role = Role {
        metadata: metadata.clone(),
        rules: Some(of_lease.map(|right| rule(right, Some(&name))).collect()),
    };
    let binding =
        RoleBinding { metadata, role_ref: role_ref("Role", part), subjects: Some(subjects(settings, part)) };
    objects.extend([Object::new(Stage::Rights, &role), Object::new(Stage::Rights, &binding)]);
    objects
}

fn rule(right: &Right, lease: Option<&str>) -> PolicyRule {
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    PolicyRule {
        api_groups: Some(vec![right.group.to_owned()]),
        resources: Some(texts(right.resources)),
        verbs: texts(right.verbs),
        resource_names: match right.which {
            Which::Named(names) => Some(texts(names)),
            Which::Lease => lease.map(|name| vec![name.to_owned()]),
            Which::All | Which::AllOfOlder | Which::AllOfNewer | Which::NewLease => None,
        },
        non_resource_urls: None,
    }
}

fn role_ref(kind: &str, part: &str) -> RoleRef {
    RoleRef {
        api_group: Some("rbac.authorization.k8s.io".to_owned()),
        kind: kind.to_owned(),
        name: part.to_owned(),
    }
}

fn subjects(settings: &Settings, part: &str) -> Vec<Subject> {
    vec![Subject {
        kind: "ServiceAccount".to_owned(),
        name: part.to_owned(),
        namespace: Some(settings.namespace.clone()),
        ..Subject::default()
    }]
}

/// The whole of docs/rights.md.
pub fn page() -> String {
    let mut page = String::from(
        "# Rights\n\n\
         What the service accounts of `gangway install` may do, and what for. There is nothing else: no wildcard, no Secret, no\n\
         right to change roles, queues or flavors, and none over pods for the controller but to see them.\n\n\
         This page is written by `gangway rights > docs/rights.md`; a test holds it equal to the roles.\n",
    );
    for part in [CONTROLLER, SCHEDULER] {
        page.push_str(&format!(
            "\n## {part}\n\n| API group | resources | verbs | which | why |\n|---|---|---|---|---|\n"
        ));
        for right in RIGHTS.iter().filter(|right| right.part == part) {
            let group = if right.group.is_empty() { "core".to_owned() } else { format!("`{}`", right.group) };
            let list =
                |texts: &[&str]| texts.iter().map(|text| format!("`{text}`")).collect::<Vec<_>>().join(", ");
            let which = match right.which {
                Which::All => "all".to_owned(),
                Which::AllOfOlder => "all, before Kubernetes 1.36".to_owned(),
                Which::AllOfNewer => "all, from Kubernetes 1.36 on".to_owned(),
                Which::Named(names) => format!("{}, from Kubernetes 1.36 on", list(names)),
                Which::Lease => format!("`{part}` in its own namespace"),
                Which::NewLease => "in its own namespace".to_owned(),
            };
            let (resources, verbs) = (list(right.resources), list(right.verbs));
            page.push_str(&format!("| {group} | {resources} | {verbs} | {which} | {} |\n", right.why));
        }
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_given_twice_and_nothing_is_a_wildcard() {
        let mut seen = std::collections::BTreeSet::new();
        for right in RIGHTS {
            for resource in right.resources {
                for verb in right.verbs {
                    assert!(*resource != "*" && *verb != "*" && right.group != "*");
                    assert!(
                        seen.insert((right.part, right.group, *resource, *verb)),
                        "{} may {verb} {resource} twice",
                        right.part
                    );
                }
            }
        }
    }

    #[test]
    fn leases_are_only_those_of_the_own_namespace() {
        let settings = Settings::new("here").unwrap();
        let objects = objects(&settings, CONTROLLER);
        let role = objects.iter().find(|object| object.text("kind") == "Role").unwrap();
        assert_eq!(role.namespace(), Some("here"));
        let cluster = objects.iter().find(|object| object.text("kind") == "ClusterRole").unwrap();
        assert!(!cluster.value.to_string().contains("leases"), "{}", cluster.value);
    }

    #[test]
    fn each_kubernetes_gets_what_it_needs() {
        let rules = |minor| {
            let settings = Settings { kubernetes_minor: minor, ..Settings::new("here").unwrap() };
            objects(&settings, CONTROLLER)[0].value.to_string()
        };
        assert!(rules(35).contains("jobs/status") && !rules(35).contains("admissionpolic"));
        assert!(!rules(36).contains("jobs/status") && rules(36).contains("mutatingadmissionpolicies"));
    }
}
