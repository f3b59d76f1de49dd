//! Who has to leave for whom, by the names that people know.

use gangway_admission::{Explanation, LeavingVictim, PreemptedFor};
use gangway_api::time::to_rfc3339;
use gangway_controller::workloads::Snapshot;
use serde_json::{Value, json};

use crate::commands::jobs::{called, full_name, job_of};
use crate::render::palette::Palette;
use crate::render::table::Table;

/// Both sides of a preemption, as far as a Workload has part in one.
#[derive(Default)]
pub struct Preemption {
    victims: Vec<Leaving>,
    preempted_for: Option<(PreemptedFor, Preemptor)>,
}

/// A victim with what its Job says.
struct Leaving {
    victim: LeavingVictim,
    job: Option<String>,
    /// Active and terminating pods; none if there is no Job to ask.
    pods: Option<(i32, i32)>,
}

/// What a preemptor is called.
struct Preemptor {
    called: String,
    workload: Option<String>,
    job: Option<String>,
}

impl Preemption {
    /// Looks the names up.
    pub fn new(explanation: &Explanation, snapshot: &Snapshot) -> Self {
        let victims = explanation.victims.iter().map(|victim| Leaving::new(victim, snapshot));
        let preempted_for = explanation.preempted_for.as_ref();
        Self {
            victims: victims.collect(),
            preempted_for: preempted_for.map(|found| (found.clone(), Preemptor::new(found, snapshot))),
        }
    }

    /// The answer for people.
    pub fn lines(&self, palette: Palette) -> Vec<String> {
        let mut lines: Vec<String> = self.preempted_for.iter().map(sentence).collect();
        if self.victims.is_empty() {
            return lines;
        }
        lines.push("  It starts when these have left:".to_owned());
        let mut table =
            Table::new(&["JOB", "WORKLOAD", "QUEUE", "WHY IT WAS CHOSEN", "TOLD TO LEAVE", "PODS"]);
        for leaving in &self.victims {
            table.row(leaving.row());
        }
        lines.extend(table.lines(palette, None).into_iter().map(|line| format!("  {line}")));
        lines
    }

    /// Adds the answer for programs.
    pub fn add_to(&self, answer: &mut Value) {
        answer["waitsFor"] = self.victims.iter().map(Leaving::json).collect();
        answer["preemptedFor"] = match &self.preempted_for {
            None => Value::Null,
            Some((found, preemptor)) => json!({
                "uid": found.uid.as_ref().map(ToString::to_string),
                "workload": preemptor.workload,
                "job": preemptor.job,
                "reason": found.reason.as_str(),
                "toldAt": to_rfc3339(found.told_at),
                "hasLeft": found.has_left,
            }),
        };
    }
}

impl Leaving {
    fn new(victim: &LeavingVictim, snapshot: &Snapshot) -> Self {
        let workload = snapshot.workload(&victim.uid);
        let status = workload.and_then(|workload| snapshot.job_of(workload)?.status.as_ref());
        Self {
            victim: victim.clone(),
            job: workload.and_then(job_of),
            pods: status.map(|status| (status.active.unwrap_or(0), status.terminating.unwrap_or(0))),
        }
    }

    fn row(&self) -> Vec<String> {
        let pods = match self.pods {
            None => "not known".to_owned(),
            Some((0, 0)) => "none left".to_owned(),
            Some((0, ending)) => format!("{ending} terminating"),
            Some((active, 0)) => format!("{active} active"),
            Some((active, ending)) => format!("{active} active, {ending} terminating"),
        };
        let victim = &self.victim;
        vec![
            self.job.clone().unwrap_or_else(|| "-".to_owned()),
            victim.name.to_string(),
            victim.cluster_queue.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string),
            victim.reason.to_string(),
            victim.told_at.map_or_else(|| "not yet".to_owned(), to_rfc3339),
            pods,
        ]
    }

    fn json(&self) -> Value {
        json!({
            "job": self.job,
            "workload": self.victim.name.to_string(),
            "clusterQueue": self.victim.cluster_queue.as_ref().map(ToString::to_string),
            "reason": self.victim.reason.as_str(),
            "toldAt": self.victim.told_at.map(to_rfc3339),
            "activePods": self.pods.map(|(active, _)| active),
            "terminatingPods": self.pods.map(|(_, terminating)| terminating),
        })
    }
}

impl Preemptor {
    fn new(found: &PreemptedFor, snapshot: &Snapshot) -> Self {
        let workload = found.uid.as_ref().and_then(|uid| snapshot.workload(uid));
        let missing = || match &found.uid {
            Some(uid) => format!("a Workload that is gone (uid {uid})"),
            None => "a Workload that was not written down".to_owned(),
        };
        Self {
            called: workload.map_or_else(missing, called),
            workload: workload.map(full_name),
            job: workload.and_then(job_of),
        }
    }
}

fn sentence((found, preemptor): &(PreemptedFor, Preemptor)) -> String {
    let (told, by, right) = (to_rfc3339(found.told_at), &preemptor.called, found.reason);
    let verb = if found.has_left { "It left" } else { "It has to leave" };
    format!("  {verb} for {by}, told at {told}. {right}: {}", right.doc().meaning)
}

#[cfg(test)]
mod tests {
    use gangway_model::reasons::PreemptionReason;
    use gangway_model::{ObjectName, Timestamp};

    use super::*;

    fn leaving(name: &str, told_at: Option<Timestamp>, pods: Option<(i32, i32)>) -> Leaving {
        let victim = LeavingVictim {
            uid: name.into(),
            name: ObjectName::new("team", name),
            cluster_queue: Some("vision".into()),
            reason: PreemptionReason::InCohortReclamation,
            told_at,
        };
        Leaving { victim, job: Some("team/train".to_owned()), pods }
    }

    #[test]
    fn a_preemptor_lists_those_it_waits_for() {
        let told = Some(Timestamp::from_seconds(60));
        let victims = vec![leaving("job-a", told, Some((0, 2))), leaving("job-b", None, Some((1, 0)))];
        let preemption = Preemption { victims, preempted_for: None };
        let expected = [
            "  It starts when these have left:",
            "  JOB         WORKLOAD    QUEUE   WHY IT WAS CHOSEN    TOLD TO LEAVE         PODS",
            "  team/train  team/job-a  vision  InCohortReclamation  1970-01-01T00:01:00Z  2 terminating",
            "  team/train  team/job-b  vision  InCohortReclamation  not yet               1 active",
        ];
        assert_eq!(preemption.lines(Palette::None), expected);
        let mut answer = json!({});
        preemption.add_to(&mut answer);
        assert_eq!(answer["waitsFor"][0]["terminatingPods"], 2);
        assert_eq!((&answer["waitsFor"][1]["toldAt"], &answer["preemptedFor"]), (&Value::Null, &Value::Null));
    }

    #[test]
    fn a_victim_says_for_whom_and_by_which_right() {
        let found = |has_left| PreemptedFor {
            uid: Some("u".into()),
            reason: PreemptionReason::InClusterQueue,
            told_at: Timestamp::EPOCH,
            has_left,
        };
        let preemptor = || Preemptor {
            called: "Job team/high (Workload team/job-high)".to_owned(),
            workload: None,
            job: None,
        };
        for (has_left, begins) in
            [(true, "  It left for Job team/high"), (false, "  It has to leave for Job team/high")]
        {
            let preemption =
                Preemption { preempted_for: Some((found(has_left), preemptor())), ..Preemption::default() };
            let lines = preemption.lines(Palette::None);
            assert!(lines[0].starts_with(begins), "{lines:?}");
            assert!(
                lines[0].contains("told at 1970-01-01T00:00:00Z. InClusterQueue: A Workload of the same"),
                "{lines:?}"
            );
        }
    }
}
