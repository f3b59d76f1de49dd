//! What an account may do: asked of the API server, right by right.

use std::collections::BTreeMap;
use std::fmt;

use futures::{StreamExt, TryStreamExt, stream};
use gangway_api::install::{self, RIGHTS, SCHEDULER, UNSUPPORTED, Which};
use gangway_api::policies;
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec, SubjectAccessReview,
    SubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client};

use super::finding::{Area, Finding};
use super::fix::word;
use super::{is_not_served, unreadable};

/// Something that an account has to be allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Right {
    /// Who needs it, such as `gangway-controller`.
    pub part: &'static str,
    /// The API group, empty for core.
    pub group: &'static str,
    /// The resource.
    pub resource: &'static str,
    /// The subresource, empty for the object itself.
    pub subresource: &'static str,
    /// What is to be done.
    pub verb: &'static str,
    /// The one namespace in which it is needed; empty for all.
    pub namespace: String,
    /// The one object of which it is needed; empty for all.
    pub name: String,
    /// What for.
    pub why: &'static str,
}

impl Right {
    /// As `kubectl create role` names it: `jobs.batch/status`.
    fn resource_text(&self) -> String {
        let group = if self.group.is_empty() { String::new() } else { format!(".{}", self.group) };
        let subresource =
            if self.subresource.is_empty() { String::new() } else { format!("/{}", self.subresource) };
        format!("{}{group}{subresource}", self.resource)
    }
}

/// The Lease by which one of several is chosen: its namespace and its name.
pub type LeaseName = (String, String);

/// Every right that the controller and the scheduler use on this minor version of Kubernetes, one by one. A Lease is needed by a
/// part that is chosen by one.
pub fn rights(
    minor: Option<u32>,
    controller_lease: Option<&LeaseName>,
    scheduler_lease: Option<&LeaseName>,
) -> Vec<Right> {
    let is_older = minor.is_some_and(|minor| minor < policies::FIRST_MINOR);
    let mut rights = Vec::new();
    // Kinds of other systems that a cluster does not have cannot be given rights on.
    for line in RIGHTS.iter().filter(|line| line.why != UNSUPPORTED || line.group == "apps") {
        let lease = if line.part == SCHEDULER { scheduler_lease } else { controller_lease };
        match (line.which, lease) {
            (Which::AllOfOlder, _) if !is_older => {}
            (Which::AllOfNewer | Which::Named(_), _) if is_older => {}
            (Which::Lease | Which::NewLease, None) => {}
            (Which::Lease, Some((namespace, name))) => rights.extend(one_by_one(line, namespace, name)),
            (Which::NewLease, Some((namespace, _))) => rights.extend(one_by_one(line, namespace, "")),
            (Which::Named(names), _) => {
                rights.extend(names.iter().flat_map(|name| one_by_one(line, "", name)));
            }
            (Which::All | Which::AllOfOlder | Which::AllOfNewer, _) => {
                rights.extend(one_by_one(line, "", ""))
            }
        }
    }
    rights
}

/// The rights of a line of the table: one for each resource and verb.
fn one_by_one<'n>(
    line: &'static install::Right,
    namespace: &'n str,
    name: &'n str,
) -> impl Iterator<Item = Right> + use<'n> {
    let pairs =
        line.resources.iter().flat_map(|resource| line.verbs.iter().map(move |verb| (*resource, *verb)));
    pairs.map(move |(resource, verb)| {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        Right {
            part: line.part,
            group: line.group,
            resource,
            subresource,
            verb,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            why: line.why,
        }
    })
}

/// So many questions are under way at once.
const AT_ONCE: usize = 8;

/// Asks for every right whether an account has it; without a name, whether whoever asks has it.
pub(super) async fn examine(client: &Client, account: Option<&str>, rights: &[Right]) -> Vec<Finding> {
    let rights = &of_account(rights, account);
    let asked = stream::iter(rights.iter().map(|right| is_allowed(client, account, right)));
    let answers: Result<Vec<bool>, kube::Error> = asked.buffered(AT_ONCE).try_collect().await;
    let answers = match answers {
        Ok(answers) => answers,
        Err(error) if is_not_served(&error) => {
            return vec![Finding::skipped(Area::Rights, "this API asks nobody for rights")];
        }
        Err(error) => return vec![unreadable(Area::Rights, "rights of accounts", &error)],
    };
    let refused: Vec<&Right> =
        rights.iter().zip(answers).filter(|(_, allowed)| !allowed).map(|(right, _)| right).collect();
    let name = match account {
        Some(account) => account.to_owned(),
        None => own_name(client).await,
    };
    judge(&name, rights.len(), &refused)
}

/// The rights that an account needs: a service account that is called like a part needs only that part's.
fn of_account(rights: &[Right], account: Option<&str>) -> Vec<Right> {
    let name = account.and_then(|account| account.strip_prefix("system:serviceaccount:")?.split_once(':'));
    let is_part = |part: &str| name.is_some_and(|(_, name)| name == part);
    let of_one_part = rights.iter().any(|right| is_part(right.part));
    rights.iter().filter(|right| !of_one_part || is_part(right.part)).cloned().collect()
}

async fn is_allowed(client: &Client, account: Option<&str>, right: &Right) -> Result<bool, kube::Error> {
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let attributes = ResourceAttributes {
        group: text(right.group),
        resource: text(right.resource),
        subresource: text(right.subresource),
        verb: text(right.verb),
        namespace: text(&right.namespace),
        name: text(&right.name),
        ..ResourceAttributes::default()
    };
    let resource_attributes = Some(attributes);
    let how = PostParams::default();
    let status = match account {
        None => {
            let spec = SelfSubjectAccessReviewSpec { resource_attributes, ..Default::default() };
            let review = SelfSubjectAccessReview { spec, ..Default::default() };
            Api::all(client.clone()).create(&how, &review).await?.status
        }
        Some(account) => {
            let (user, groups) = (Some(account.to_owned()), Some(groups(account)));
            let spec = SubjectAccessReviewSpec { resource_attributes, user, groups, ..Default::default() };
            let review = SubjectAccessReview { spec, ..Default::default() };
            Api::all(client.clone()).create(&how, &review).await?.status
        }
    };
    Ok(status.is_some_and(|status| status.allowed))
}

/// The groups of which an account is a member by its name.
fn groups(account: &str) -> Vec<String> {
    let mut groups = vec!["system:authenticated".to_owned()];
    let service_account = account.strip_prefix("system:serviceaccount:");
    if let Some((namespace, _)) = service_account.and_then(|rest| rest.split_once(':')) {
        groups.push("system:serviceaccounts".to_owned());
        groups.push(format!("system:serviceaccounts:{namespace}"));
    }
    groups
}

/// As the API server knows whoever asks.
async fn own_name(client: &Client) -> String {
    let review = Api::all(client.clone()).create(&PostParams::default(), &SelfSubjectReview::default()).await;
    let user = review.ok().and_then(|review| review.status?.user_info?.username);
    user.unwrap_or_else(|| "USER".to_owned())
}

fn judge(account: &str, asked: usize, refused: &[&Right]) -> Vec<Finding> {
    if refused.is_empty() {
        let what = format!("{account} has each of the {asked} rights that are needed");
        return vec![Finding::ok(Area::Rights, what)];
    }
    // Resources with the same verbs missing are given with one command.
    let mut verbs: BTreeMap<(&str, Scope<'_>, String), Vec<&Right>> = BTreeMap::new();
    for right in refused {
        let scope = Scope { namespace: &right.namespace, name: &right.name };
        let resource = (right.part, scope, right.resource_text());
        verbs.entry(resource).or_default().push(right);
    }
    type Together<'r> = BTreeMap<(&'r str, Scope<'r>, Vec<&'r str>), Vec<(String, &'r Right)>>;
    let mut together: Together<'_> = BTreeMap::new();
    for ((part, scope, resource), rights) in verbs {
        let verbs = rights.iter().map(|right| right.verb).collect();
        together.entry((part, scope, verbs)).or_default().push((resource, rights[0]));
    }
    together
        .into_iter()
        .map(|((part, scope, verbs), resources)| {
            let names: Vec<&str> = resources.iter().map(|(name, _)| name.as_str()).collect();
            let (verbs, names) = (verbs.join(","), names.join(","));
            let what = format!("may not {} {}{scope}", verbs.replace(',', ", "), names.replace(',', ", "));
            let fix = grant(account, part, scope, &verbs, &names);
            let mut why: Vec<&str> = resources.iter().map(|(_, right)| right.why).collect();
            why.sort_unstable();
            why.dedup();
            let needed = format!("{part} needs that: {}.", why.join("; "));
            Finding::problem(Area::Rights, format!("account {account}"), what, fix).because(needed)
        })
        .collect()
}

/// Which objects of its resources a right is about; what is empty does not narrow it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Scope<'r> {
    namespace: &'r str,
    name: &'r str,
}

impl fmt::Display for Scope<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.name.is_empty() {
            write!(f, " {}", self.name)?;
        }
        if !self.namespace.is_empty() {
            write!(f, " in namespace {}", self.namespace)?;
        }
        Ok(())
    }
}

/// The commands that give verbs on resources.
fn grant(account: &str, part: &str, scope: Scope<'_>, verbs: &str, resources: &str) -> String {
    let (kind, place) = match scope.namespace {
        "" => ("clusterrole", String::new()),
        namespace => ("role", format!(" -n {}", word(namespace))),
    };
    let (only, of) = match scope.name {
        "" => (String::new(), String::new()),
        name => (format!(" --resource-name={}", word(name)), format!("-{name}")),
    };
    let name = format!("{part}-{}{of}", verbs.replace(',', "-"));
    format!(
        "kubectl create {kind} {name}{place} --verb={verbs} --resource={resources}{only} && \
         kubectl create {kind}binding {name}{place} --{kind}={name} --user={}",
        word(account)
    )
}

#[cfg(test)]
mod tests {
    use gangway_api::install::CONTROLLER;

    use super::*;

    fn lease() -> LeaseName {
        ("here".to_owned(), "gangway-controller".to_owned())
    }

    #[test]
    fn rights_are_whole() {
        let rights = rights(Some(37), Some(&lease()), None);
        let scheduler_lease = |right: &&Right| right.part == SCHEDULER && right.resource == "leases";
        assert!(rights.iter().all(|right| !right.why.is_empty() && !right.resource.contains('/')));
        assert_eq!(rights.iter().filter(scheduler_lease).count(), 0);
        let leases: Vec<&str> =
            rights.iter().filter(|right| right.namespace == "here").map(|right| right.verb).collect();
        assert_eq!(leases, ["create", "get", "update"]);
        let older = super::rights(Some(35), None, None);
        let of_status = |right: &&Right| (right.resource, right.subresource) == ("jobs", "status");
        assert_eq!(older.iter().filter(of_status).count(), 1);
        assert_eq!(rights.iter().filter(of_status).count(), 0);
    }

    #[test]
    fn what_is_missing_is_given_with_one_command_per_set_of_verbs() {
        let all = rights(Some(37), Some(&lease()), None);
        let is_refused = |right: &&Right| {
            right.part == CONTROLLER
                && (matches!(
                    (right.group, right.resource, right.subresource),
                    ("batch" | "scheduling.k8s.io", _, _)
                ) && matches!(right.verb, "list" | "watch")
                    || right.subresource == "status" && right.resource == "workloads"
                    || right.resource == "leases")
        };
        let refused: Vec<&Right> = all.iter().filter(is_refused).collect();
        let findings = judge("system:serviceaccount:here:it's", all.len(), &refused);
        let fixes: Vec<&str> = findings.iter().filter_map(|finding| finding.fix.as_deref()).collect();
        let user = r"--user='system:serviceaccount:here:it'\''s'";
        let cluster = |name: &str, verbs: &str, resources: &str| {
            format!(
                "kubectl create clusterrole {name} --verb={verbs} --resource={resources} && \
                 kubectl create clusterrolebinding {name} --clusterrole={name} {user}"
            )
        };
        let by_name = "gangway-controller-get-update-gangway-controller";
        let expected = [
            cluster(
                "gangway-controller-list-watch",
                "list,watch",
                "jobs.batch,priorityclasses.scheduling.k8s.io",
            ),
            cluster("gangway-controller-patch", "patch", "workloads.kueue.x-k8s.io/status"),
            format!(
                "kubectl create role gangway-controller-create -n here --verb=create --resource=leases.coordination.k8s.io && \
                 kubectl create rolebinding gangway-controller-create -n here --role=gangway-controller-create {user}"
            ),
            format!(
                "kubectl create role {by_name} -n here --verb=get,update --resource=leases.coordination.k8s.io \
                 --resource-name=gangway-controller && \
                 kubectl create rolebinding {by_name} -n here --role={by_name} {user}"
            ),
        ];
        assert_eq!(fixes, expected);
        assert_eq!(findings[1].what, "may not patch workloads.kueue.x-k8s.io/status");
        assert_eq!(findings[1].why, "gangway-controller needs that: decisions.");
    }

    #[test]
    fn nothing_missing_is_one_line() {
        let findings = judge("admin", 7, &[]);
        assert_eq!(findings, [Finding::ok(Area::Rights, "admin has each of the 7 rights that are needed")]);
    }

    #[test]
    fn the_account_of_a_part_needs_what_the_part_needs() {
        let all = rights(Some(37), None, None);
        let parts = |account: Option<&str>| {
            let needed = of_account(&all, account);
            let mut parts: Vec<&str> = needed.iter().map(|right| right.part).collect();
            parts.sort_unstable();
            parts.dedup();
            parts
        };
        assert_eq!(parts(None), [CONTROLLER, SCHEDULER]);
        assert_eq!(parts(Some("system:serviceaccount:ours:any")), [CONTROLLER, SCHEDULER]);
        assert_eq!(parts(Some("system:serviceaccount:ours:gangway-controller")), [CONTROLLER]);
        assert_eq!(parts(Some("system:serviceaccount:ours:gangway-scheduler")), [SCHEDULER]);
    }

    #[test]
    fn service_accounts_are_in_their_groups() {
        assert_eq!(groups("jane"), ["system:authenticated"]);
        let of_account = groups("system:serviceaccount:ours:gangway-controller");
        assert_eq!(
            of_account,
            ["system:authenticated", "system:serviceaccounts", "system:serviceaccounts:ours"]
        );
    }
}
