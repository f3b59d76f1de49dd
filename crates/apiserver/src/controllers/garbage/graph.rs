//! Who owns whom, and what follows from it. No I/O.

use std::collections::VecDeque;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use rustc_hash::{FxHashMap, FxHashSet};

use super::resources::Resource;

pub(super) type Uid = String;

/// Keeps an owner until its dependents are gone.
pub(super) const FOREGROUND_FINALIZER: &str = "foregroundDeletion";
/// Keeps an owner until its dependents do not name it any more.
pub(super) const ORPHAN_FINALIZER: &str = "orphan";

/// How many uids of deleted objects are remembered, so that each dependent need not ask for its owner.
const MAX_REMEMBERED: usize = 16_384;

/// An object, as far as garbage collection cares.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub resource: Arc<Resource>,
    pub namespace: Option<String>,
    pub name: String,
    pub version: Option<String>,
    pub deleting: bool,
    pub finalizers: Vec<String>,
    pub owners: Vec<OwnerReference>,
    listing: u64,
}

impl Node {
    fn of(resource: Arc<Resource>, metadata: ObjectMeta, listing: u64) -> Self {
        Self {
            resource,
            namespace: metadata.namespace,
            name: metadata.name.unwrap_or_default(),
            version: metadata.resource_version,
            deleting: metadata.deletion_timestamp.is_some(),
            finalizers: metadata.finalizers.unwrap_or_default(),
            owners: metadata.owner_references.unwrap_or_default(),
            listing,
        }
    }

    fn waits_for_dependents(&self) -> bool {
        self.deleting && self.has_finalizer(FOREGROUND_FINALIZER)
    }

    fn orphans_dependents(&self) -> bool {
        self.deleting && self.has_finalizer(ORPHAN_FINALIZER)
    }

    fn has_finalizer(&self, name: &str) -> bool {
        self.finalizers.iter().any(|finalizer| finalizer == name)
    }
}

/// How a deletion treats the dependents of what is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Propagation {
    Background,
    Foreground,
    Orphan,
}

/// What to do about an object.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Action {
    Nothing,
    /// Ask the API whether these owners exist.
    FindOwners(Vec<OwnerReference>),
    /// These owners are gone or going, and others remain.
    DropOwners(Vec<Uid>),
    Delete(Propagation),
    /// Make its dependents forget it, then let it go.
    OrphanDependents(Vec<Uid>),
    RemoveFinalizer(&'static str),
    /// Dependents that stand in the way of its deletion are to be looked at first.
    Await(Vec<Uid>),
}

#[derive(Debug, Default)]
pub(super) struct Graph {
    nodes: FxHashMap<Uid, Node>,
    dependents: FxHashMap<Uid, FxHashSet<Uid>>,
    gone: FxHashSet<Uid>,
    gone_in_order: VecDeque<Uid>,
    /// Owners that the API confirmed although no watch has shown them.
    confirmed: FxHashSet<Uid>,
}

impl Graph {
    pub(super) fn node(&self, uid: &str) -> Option<&Node> {
        self.nodes.get(uid)
    }

    /// Takes in an object; returns the objects to look at.
    pub(super) fn apply(&mut self, resource: &Arc<Resource>, metadata: ObjectMeta, listing: u64) -> Vec<Uid> {
        let Some(uid) = metadata.uid.clone() else { return Vec::new() };
        let node = Node::of(resource.clone(), metadata, listing);
        self.confirmed.remove(&uid);
        if let Some(old) = self.nodes.get(&uid) {
            for owner in old.owners.clone() {
                self.unlink(&owner.uid, &uid);
            }
        }
        for owner in &node.owners {
            self.dependents.entry(owner.uid.clone()).or_default().insert(uid.clone());
        }
        let mut affected = Vec::new();
        if !node.owners.is_empty() || node.waits_for_dependents() || node.orphans_dependents() {
            affected.push(uid.clone());
        }
        if node.waits_for_dependents() {
            affected.extend(self.dependents_of(&uid));
        }
        let old_owners = self.nodes.get(&uid).map(|old| old.owners.as_slice()).unwrap_or_default();
        affected.extend(self.held_back(old_owners.iter().chain(&node.owners)));
        self.nodes.insert(uid, node);
        affected
    }

    /// Takes note that an object is gone; returns the objects to look at.
    pub(super) fn remove(&mut self, uid: &str) -> Vec<Uid> {
        let mut affected: Vec<Uid> = self.dependents_of(uid);
        if let Some(node) = self.nodes.remove(uid) {
            node.owners.iter().for_each(|owner| self.unlink(&owner.uid, uid));
            affected.extend(self.held_back(node.owners.iter()));
        }
        self.note_absent(uid);
        affected
    }

    /// Those of the owners that cannot go before their dependents are dealt with.
    fn held_back<'a>(&self, owners: impl Iterator<Item = &'a OwnerReference>) -> FxHashSet<Uid> {
        let held = |node: &Node| node.waits_for_dependents() || node.orphans_dependents();
        let owners = owners.filter(|owner| self.nodes.get(&owner.uid).is_some_and(held));
        owners.map(|owner| owner.uid.clone()).collect()
    }

    fn unlink(&mut self, owner: &str, dependent: &str) {
        if let Some(dependents) = self.dependents.get_mut(owner) {
            dependents.remove(dependent);
            if dependents.is_empty() {
                self.dependents.remove(owner);
            }
        }
    }

    /// Remembers that no object has this uid.
    pub(super) fn note_absent(&mut self, uid: &str) {
        self.confirmed.remove(uid);
        if self.gone.insert(uid.to_owned()) {
            self.gone_in_order.push_back(uid.to_owned());
        }
        if self.gone_in_order.len() > MAX_REMEMBERED
            && let Some(oldest) = self.gone_in_order.pop_front()
        {
            self.gone.remove(&oldest);
        }
    }

    /// Remembers that the API has an object of this uid, until a watch shows it.
    pub(super) fn note_present(&mut self, uid: &str) {
        if !self.nodes.contains_key(uid) {
            self.confirmed.insert(uid.to_owned());
        }
    }

    /// Removes objects of a resource that a listing did not show.
    pub(super) fn remove_unlisted(&mut self, resource: &Resource, listing: u64) -> Vec<Uid> {
        let unlisted = |node: &Node| *node.resource == *resource && node.listing < listing;
        let uids: Vec<Uid> =
            self.nodes.iter().filter(|(_, node)| unlisted(node)).map(|(uid, _)| uid.clone()).collect();
        uids.iter().flat_map(|uid| self.remove(uid)).collect()
    }

    /// Objects with owners: what a change of the served kinds may affect.
    pub(super) fn owned(&self) -> Vec<Uid> {
        self.nodes.iter().filter(|(_, node)| !node.owners.is_empty()).map(|(uid, _)| uid.clone()).collect()
    }

    fn dependents_of(&self, uid: &str) -> Vec<Uid> {
        self.dependents.get(uid).into_iter().flatten().cloned().collect()
    }

    /// What to do about the object now.
    pub(super) fn decide(&self, uid: &str) -> Action {
        let Some(node) = self.nodes.get(uid) else { return Action::Nothing };
        if node.orphans_dependents() {
            return match self.dependents_of(uid) {
                dependents if dependents.is_empty() => Action::RemoveFinalizer(ORPHAN_FINALIZER),
                dependents => Action::OrphanDependents(dependents),
            };
        }
        if node.waits_for_dependents() {
            let blocking = self.blocking_dependents(uid);
            return match blocking.is_empty() {
                true => Action::RemoveFinalizer(FOREGROUND_FINALIZER),
                false => Action::Await(blocking),
            };
        }
        if node.deleting || node.owners.is_empty() {
            return Action::Nothing;
        }
        self.decide_by_owners(uid, node)
    }

    fn decide_by_owners(&self, uid: &str, node: &Node) -> Action {
        let (mut solid, mut waiting, mut missing, mut unknown) = (0, Vec::new(), Vec::new(), Vec::new());
        for owner in &node.owners {
            match self.nodes.get(&owner.uid) {
                Some(known) if known.waits_for_dependents() => waiting.push(owner.uid.clone()),
                Some(_) => solid += 1,
                None if self.confirmed.contains(&owner.uid) => solid += 1,
                None if self.gone.contains(&owner.uid) => missing.push(owner.uid.clone()),
                None => unknown.push(owner.clone()),
            }
        }
        if !unknown.is_empty() {
            return Action::FindOwners(unknown);
        }
        let has_dependents = self.dependents.contains_key(uid);
        match (solid, waiting.is_empty() && missing.is_empty()) {
            (1.., true) => Action::Nothing,
            (1.., false) => Action::DropOwners([waiting, missing].concat()),
            _ if !waiting.is_empty() && has_dependents => Action::Delete(Propagation::Foreground),
            _ if node.has_finalizer(ORPHAN_FINALIZER) => Action::Delete(Propagation::Orphan),
            _ if node.has_finalizer(FOREGROUND_FINALIZER) => Action::Delete(Propagation::Foreground),
            _ => Action::Delete(Propagation::Background),
        }
    }

    /// Dependents that an owner waits for.
    fn blocking_dependents(&self, uid: &str) -> Vec<Uid> {
        let blocks = |dependent: &Uid| {
            let owners = self.nodes.get(dependent).map(|node| node.owners.as_slice()).unwrap_or_default();
            owners.iter().any(|owner| owner.uid == uid && owner.block_owner_deletion == Some(true))
        };
        self.dependents_of(uid).into_iter().filter(blocks).collect()
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    fn resource() -> Arc<Resource> {
        Arc::new(Resource::for_tests("pods", "Pod"))
    }

    fn object(uid: &str, owners: &[(&str, bool)]) -> ObjectMeta {
        let reference = |(owner, blocks): &(&str, bool)| OwnerReference {
            uid: (*owner).to_owned(),
            block_owner_deletion: Some(*blocks),
            ..OwnerReference::default()
        };
        ObjectMeta {
            uid: Some(uid.to_owned()),
            name: Some(uid.to_owned()),
            owner_references: Some(owners.iter().map(reference).collect()),
            ..ObjectMeta::default()
        }
    }

    fn deleting(mut metadata: ObjectMeta, finalizer: &str) -> ObjectMeta {
        metadata.deletion_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH));
        metadata.finalizers = Some(vec![finalizer.to_owned()]);
        metadata
    }

    fn graph(objects: Vec<ObjectMeta>) -> Graph {
        let mut graph = Graph::default();
        for metadata in objects {
            graph.apply(&resource(), metadata, 1);
        }
        graph
    }

    #[test]
    fn dependents_follow_their_last_owner() {
        let mut graph =
            graph(vec![object("a", &[]), object("b", &[]), object("d", &[("a", true), ("b", true)])]);
        assert_eq!(graph.decide("d"), Action::Nothing);
        assert_eq!(graph.remove("a"), ["d"]);
        assert_eq!(graph.decide("d"), Action::DropOwners(vec!["a".to_owned()]));
        assert_eq!(graph.remove("b"), ["d"]);
        assert_eq!(graph.decide("d"), Action::Delete(Propagation::Background));
    }

    #[test]
    fn owners_that_no_watch_showed_are_asked_for() {
        let mut graph = graph(vec![object("d", &[("never", false)])]);
        assert!(matches!(graph.decide("d"), Action::FindOwners(owners) if owners.len() == 1));
        graph.note_present("never");
        assert_eq!(graph.decide("d"), Action::Nothing);
        graph.note_absent("never");
        assert_eq!(graph.decide("d"), Action::Delete(Propagation::Background));
    }

    #[test]
    fn foreground_owners_wait_for_those_that_block() {
        let mut graph =
            graph(vec![object("o", &[]), object("d", &[("o", true)]), object("e", &[("o", false)])]);
        let mut affected = graph.apply(&resource(), deleting(object("o", &[]), FOREGROUND_FINALIZER), 1);
        affected.sort();
        assert_eq!(affected, ["d", "e", "o"]);
        assert_eq!(graph.decide("o"), Action::Await(vec!["d".to_owned()]));
        assert_eq!(graph.decide("d"), Action::Delete(Propagation::Background));
        assert_eq!(graph.remove("d"), ["o"]);
        assert_eq!(graph.decide("o"), Action::RemoveFinalizer(FOREGROUND_FINALIZER));
    }

    #[test]
    fn foreground_deletion_reaches_down() {
        let objects = vec![
            deleting(object("o", &[]), FOREGROUND_FINALIZER),
            object("d", &[("o", true)]),
            object("grandchild", &[("d", true)]),
        ];
        assert_eq!(graph(objects).decide("d"), Action::Delete(Propagation::Foreground));
    }

    #[test]
    fn orphans_forget_their_owner() {
        let mut graph =
            graph(vec![deleting(object("o", &[]), ORPHAN_FINALIZER), object("d", &[("o", true)])]);
        assert_eq!(graph.decide("o"), Action::OrphanDependents(vec!["d".to_owned()]));
        graph.apply(&resource(), object("d", &[]), 1);
        assert_eq!(graph.decide("o"), Action::RemoveFinalizer(ORPHAN_FINALIZER));
    }

    #[test]
    fn what_a_listing_does_not_show_is_gone() {
        let mut graph = graph(vec![object("o", &[]), object("d", &[("o", true)])]);
        graph.apply(&resource(), object("d", &[("o", true)]), 2);
        assert_eq!(graph.remove_unlisted(&resource(), 2), ["d"]);
        assert_eq!(graph.decide("d"), Action::Delete(Propagation::Background));
    }

    #[test]
    fn what_is_being_deleted_is_left_alone() {
        let mut graph = graph(vec![deleting(object("d", &[("o", true)]), "example.com/mine")]);
        graph.note_absent("o");
        assert_eq!(graph.decide("d"), Action::Nothing);
    }
}
