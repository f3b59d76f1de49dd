//! The pod scheduler's configuration file: what takes effect, what is refused, and in which words.

use std::time::Duration;

use gangway_api::scheduler_config::{SchedulerConfiguration, load, recognizes};
use gangway_model::constraints::{NodeSelectorTerm, PreferredTerm};
use gangway_model::scheduling::{ProfileSettings, SchedulerSettings, ScoringStrategy, ShapePoint};
use gangway_model::selector::Requirement;

const HEAD: &str = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n";

fn read(text: &str) -> SchedulerConfiguration {
    load("s.yaml", &format!("{HEAD}{text}")).unwrap_or_else(|error| panic!("{text}\n{error}"))
}

/// The only profile of a file whose first profile has these settings, indented by four.
fn profile(settings: &str) -> ProfileSettings {
    read(&format!("profiles:\n  - schedulerName: a\n{settings}")).settings.profiles.remove(0)
}

fn names(list: &[&str]) -> Vec<String> {
    list.iter().map(|name| (*name).to_owned()).collect()
}

fn weights(list: &[(&str, i64)]) -> Vec<(String, i64)> {
    list.iter().map(|(name, weight)| ((*name).to_owned(), *weight)).collect()
}

#[test]
fn a_file_that_says_nothing_has_the_defaults_of_the_reference() {
    let read = read("");
    let profiles = vec![ProfileSettings::named("default-scheduler")];
    assert_eq!(read.settings, SchedulerSettings { profiles, ..SchedulerSettings::default() });
    assert_eq!((read.requests_per_second, read.request_burst), (50.0, 100));
    let election = read.leader_election.clone().unwrap();
    assert_eq!((election.namespace.as_str(), election.name.as_str()), ("kube-system", "kube-scheduler"));
    let seconds = [election.lease_duration, election.renew_deadline, election.retry_period];
    assert_eq!(seconds.map(|duration| duration.as_secs()), [15, 10, 2]);
    let settings = read.settings;
    assert_eq!((settings.initial_backoff.as_secs(), settings.max_backoff.as_secs()), (1, 10));
    assert_eq!((settings.pop_from_backoff, settings.max_in_unschedulable.as_secs()), (true, 300));
}

#[test]
fn the_default_profile_runs_all_plugins_in_the_order_of_the_reference() {
    let profile = &read("").settings.profiles[0];
    assert_eq!(profile.pre_enqueue, names(&["SchedulingGates", "DefaultPreemption"]));
    let filters = ["NodeName", "NodeUnschedulable", "TaintToleration", "NodeAffinity", "NodePorts"];
    assert_eq!(profile.filter[..5], names(&filters));
    assert_eq!(profile.filter[5..], names(&["NodeResourcesFit", "PodTopologySpread"]));
    assert_eq!(profile.post_filter, names(&["DefaultPreemption"]));
    let scores = [
        ("TaintToleration", 3),
        ("NodeAffinity", 2),
        ("NodeResourcesFit", 1),
        ("PodTopologySpread", 2),
        ("NodeResourcesBalancedAllocation", 1),
    ];
    assert_eq!(profile.score, weights(&scores));
    assert_eq!(profile.percentage_of_nodes_to_score, None);
}

#[test]
fn without_a_file_there_is_one_profile_of_our_own_and_no_lease() {
    let none = SchedulerConfiguration::default();
    assert_eq!(none.settings.profiles, vec![ProfileSettings::named("gangway")]);
    assert_eq!((none.leader_election.clone(), none.warnings()), (None, vec![]));
    let shown = none.show();
    assert_eq!(load("shown", &shown), Ok(none), "{shown}");
}

#[test]
fn numbers_take_effect() {
    let text = "parallelism: 4\npercentageOfNodesToScore: 30\npodInitialBackoffSeconds: 2\npodMaxBackoffSeconds: 2\n\
                clientConnection: {kubeconfig: /etc/s.conf, qps: 5, burst: 7, contentType: application/json}\n\
                leaderElection: {leaderElect: false, leaseDuration: 1m}\nenableProfiling: false\nprofiles:\n\
                - schedulerName: a\n- schedulerName: b\n  percentageOfNodesToScore: 0\n- {schedulerName: c, percentageOfNodesToScore: 100}\n";
    let read = read(text);
    let of_profiles: Vec<_> = read.settings.profiles.iter().map(|p| p.percentage_of_nodes_to_score).collect();
    assert_eq!(of_profiles, [Some(30), None, Some(100)]);
    let two = Duration::from_secs(2);
    assert_eq!((read.settings.initial_backoff, read.settings.max_backoff), (two, two));
    assert_eq!((read.requests_per_second, read.request_burst), (5.0, 7));
    assert_eq!(read.kubeconfig.as_deref(), Some(std::path::Path::new("/etc/s.conf")));
    assert_eq!((read.leader_election.clone(), read.parallelism), (None, Some(4)));
    let shown = read.show();
    assert!(shown.starts_with("# parallelism: has no effect: one thread decides"), "{shown}");
    assert_eq!(load("shown", &shown), Ok(read), "{shown}");
}

#[test]
fn a_second_scheduler_is_warned_of_the_lease_of_the_first() {
    let warned = |text: &str| read(text).warnings().into_iter().map(|(path, _)| path).collect::<Vec<_>>();
    assert_eq!(warned("profiles: [{schedulerName: a}]\n"), ["leaderElection.resourceName"]);
    assert!(warned("profiles: [{schedulerName: a}]\nleaderElection: {resourceName: a}\n").is_empty());
    assert!(warned("profiles: [{schedulerName: a}]\nleaderElection: {leaderElect: false}\n").is_empty());
    assert!(warned("profiles: [{schedulerName: a}, {schedulerName: default-scheduler}]\n").is_empty());
}

#[test]
fn plugins_are_listed_everywhere_or_at_a_point() {
    let scores = |settings: &str| profile(&format!("    plugins:\n{settings}")).score;
    // A default that is listed again keeps its place and takes the new weight, which is 1 if there is none.
    let again =
        scores("      multiPoint: {enabled: [{name: NodeAffinity, weight: 9}, {name: TaintToleration}]}\n");
    assert_eq!(again[..3], weights(&[("TaintToleration", 1), ("NodeAffinity", 9), ("NodeResourcesFit", 1)]));
    // One that is disabled and listed again comes last.
    let last = scores(
        "      multiPoint:\n        disabled: [{name: NodeAffinity}]\n        enabled: [{name: NodeAffinity, weight: 4}]\n",
    );
    assert_eq!(
        (last[0].clone(), last[4].clone()),
        (weights(&[("TaintToleration", 3)])[0].clone(), ("NodeAffinity".to_owned(), 4))
    );
    // What a point says beats what is said for all of them, and stands first there.
    let both = scores(
        "      multiPoint: {enabled: [{name: NodeAffinity, weight: 9}]}\n      score: {enabled: [{name: NodeAffinity, weight: 5}]}\n",
    );
    assert_eq!(both[..2], weights(&[("NodeAffinity", 5), ("TaintToleration", 3)]));
    assert_eq!(both.len(), 5);
    // All but what is listed.
    let only =
        scores("      score: {disabled: [{name: '*'}], enabled: [{name: NodeResourcesFit, weight: 7}]}\n");
    assert_eq!(only, weights(&[("NodeResourcesFit", 7)]));
    // A plugin that is disabled at one point still runs at the others.
    let profile =
        profile("    plugins: {score: {disabled: [{name: TaintToleration}, {name: InterPodAffinity}]}}\n");
    assert_eq!(profile.score[0], ("NodeAffinity".to_owned(), 2));
    assert!(profile.filter.contains(&"TaintToleration".to_owned()));
}

#[test]
fn plugins_can_be_left_out_altogether() {
    let text = "    plugins:\n      multiPoint:\n        disabled: [{name: '*'}]\n        enabled: [{name: DefaultBinder}, {name: PrioritySort}, {name: NodeResourcesFit}, {name: NodeName}]\n";
    let read = profile(text);
    assert_eq!(read.filter, names(&["NodeResourcesFit", "NodeName"]));
    assert_eq!(read.score, weights(&[("NodeResourcesFit", 1)]));
    assert!(read.pre_enqueue.is_empty() && read.post_filter.is_empty());
    let fewer = profile(
        "    plugins:\n      multiPoint: {disabled: [{name: DefaultPreemption}, {name: VolumeBinding}, {name: OfMyOwn}]}\n",
    );
    assert_eq!((fewer.pre_enqueue, fewer.post_filter), (names(&["SchedulingGates"]), vec![]));
}

/// The shapes in which the documentation of the reference shows these files.
#[test]
fn the_examples_of_the_reference_are_read() {
    let no_scoring = "profiles:\n  - schedulerName: default-scheduler\n  - schedulerName: no-scoring-scheduler\n    plugins:\n      \
                      preScore:\n        disabled:\n        - name: '*'\n      score:\n        disabled:\n        - name: '*'\n";
    let read_back = read(no_scoring);
    assert_eq!(read_back.settings.profiles[0], ProfileSettings::named("default-scheduler"));
    assert!(read_back.settings.profiles[1].score.is_empty());
    assert_eq!(read_back.settings.profiles[1].filter, read_back.settings.profiles[0].filter);
    let bin_packing = "profiles:\n- pluginConfig:\n  - args:\n      scoringStrategy:\n        resources:\n        - name: cpu\n          weight: 1\n        \
                       - name: memory\n          weight: 1\n        - name: intel.com/foo\n          weight: 3\n        type: MostAllocated\n    name: NodeResourcesFit\n";
    let packing = read(bin_packing).settings.profiles.remove(0);
    assert_eq!(packing.scheduler_name, "default-scheduler");
    assert_eq!(packing.fit.strategy, ScoringStrategy::MostAllocated);
    let resources = vec![("cpu".into(), 1), ("memory".into(), 1), ("intel.com/foo".into(), 3)];
    assert_eq!(packing.fit.resources, resources);
    let ratio = "    pluginConfig:\n    - name: NodeResourcesFit\n      args:\n        apiVersion: kubescheduler.config.k8s.io/v1\n        kind: NodeResourcesFitArgs\n        \
                 scoringStrategy:\n          type: RequestedToCapacityRatio\n          resources: [{name: intel.com/foo, weight: 3}]\n          \
                 requestedToCapacityRatio:\n            shape: [{utilization: 0, score: 0}, {utilization: 100, score: 10}]\n";
    let points = [(0, 0), (100, 10)].map(|(utilization, score)| ShapePoint { utilization, score });
    assert_eq!(profile(ratio).fit.strategy, ScoringStrategy::RequestedToCapacityRatio(points.to_vec()));
    let spread = "    pluginConfig:\n      - name: PodTopologySpread\n        args:\n          defaultConstraints:\n            - maxSkew: 1\n              \
                  topologyKey: topology.kubernetes.io/zone\n              whenUnsatisfiable: ScheduleAnyway\n          defaultingType: List\n";
    let spread = profile(spread).spread;
    assert!(!spread.is_system && !spread.default_constraints[0].is_hard);
    let off = "    pluginConfig: [{name: PodTopologySpread, args: {defaultConstraints: [], defaultingType: List}}]\n";
    assert_eq!((profile(off).spread.default_constraints, profile(off).spread.is_system), (vec![], false));
    let added = "    pluginConfig:\n      - name: NodeAffinity\n        args:\n          addedAffinity:\n            requiredDuringSchedulingIgnoredDuringExecution:\n              \
                 nodeSelectorTerms:\n              - matchExpressions:\n                - key: scheduler-profile\n                  operator: In\n                  values: [foo]\n            \
                 preferredDuringSchedulingIgnoredDuringExecution:\n            - weight: 7\n              preference: {matchFields: [{key: metadata.name, operator: In, values: [n1]}]}\n";
    let affinity = profile(added).affinity;
    let required =
        NodeSelectorTerm { labels: vec![Requirement::equals("scheduler-profile", "foo")], fields: vec![] };
    let preferred =
        NodeSelectorTerm { labels: vec![], fields: vec![Requirement::equals("metadata.name", "n1")] };
    assert_eq!(affinity.added_required, Some(vec![required]));
    assert_eq!(affinity.added_preferred, vec![PreferredTerm { weight: 7, term: preferred }]);
    for text in [
        no_scoring.to_owned(),
        bin_packing.to_owned(),
        format!("profiles:\n  - schedulerName: a\n{ratio}"),
        format!("profiles:\n  - schedulerName: a\n{added}"),
    ] {
        let read = read(&text);
        assert_eq!(load("shown", &read.show()), Ok(read.clone()), "{}", read.show());
    }
}

#[test]
fn what_plugins_are_told_reads_back() {
    let text = "    plugins: {score: {enabled: [{name: NodeAffinity, weight: 5}], disabled: [{name: TaintToleration}]}}\n    pluginConfig:\n    \
                - {name: NodeResourcesFit, args: {ignoredResources: [example.com/a], ignoredResourceGroups: [b.com]}}\n    \
                - {name: NodeResourcesBalancedAllocation, args: {resources: [{name: cpu}, {name: example.com/gpu, weight: 1}]}}\n    \
                - {name: DefaultPreemption, args: {minCandidateNodesPercentage: 0, minCandidateNodesAbsolute: 5}}\n    \
                - name: PodTopologySpread\n      args:\n        defaultingType: List\n        defaultConstraints:\n        \
                - {maxSkew: 2, topologyKey: zone, whenUnsatisfiable: DoNotSchedule, minDomains: 2, nodeTaintsPolicy: Honor}\n";
    let told = profile(text);
    assert!(told.fit.ignores("example.com/a") && told.fit.ignores("b.com/x") && !told.fit.ignores("cpu"));
    assert_eq!(told.balanced.resources, vec!["cpu".into(), "example.com/gpu".into()]);
    let preemption = told.preemption;
    assert_eq!((preemption.min_candidate_nodes_percentage, preemption.min_candidate_nodes_absolute), (0, 5));
    let constraint = &told.spread.default_constraints[0];
    assert_eq!(
        (constraint.max_skew, constraint.min_domains, constraint.node_taints_honored),
        (2, Some(2), true)
    );
    let read = read(&format!("profiles:\n  - schedulerName: a\n{text}"));
    assert_eq!(load("shown", &read.show()), Ok(read.clone()), "{}", read.show());
}

fn check(table: &[(&str, &str)]) {
    for (text, expected) in table {
        let error = load("s.yaml", &format!("{HEAD}{text}\n")).map(|_| ()).map_err(|error| error.to_string());
        assert_eq!(error, Err(format!("s.yaml:{expected}")), "{text}");
    }
}

#[test]
fn mistakes_are_named_with_their_line() {
    check(&[
        ("paralelism: 1", "3: paralelism: unknown field; did you mean \"parallelism\"?"),
        ("parallelism: 0", "3: parallelism: must be 1 to 2147483647"),
        (
            "percentageOfNodesToScore: 101",
            "3: percentageOfNodesToScore: must be 0 to 100; 0 depends on the number of nodes",
        ),
        ("podInitialBackoffSeconds: 0", "3: podInitialBackoffSeconds: must be 1 to 2147483647"),
        (
            "podInitialBackoffSeconds: 20",
            "3: podInitialBackoffSeconds: must not be more than podMaxBackoffSeconds, which is 10",
        ),
        (
            "podInitialBackoffSeconds: 3\npodMaxBackoffSeconds: 2",
            "4: podMaxBackoffSeconds: must not be less than podInitialBackoffSeconds, which is 3",
        ),
        ("clientConnection: {qps: 0}", "3: clientConnection.qps: must be more than 0"),
        ("clientConnection:\n  burst: -1", "4: clientConnection.burst: must be 1 to 2147483647"),
        (
            "clientConnection: {contentType: application/vnd.kubernetes.protobuf}",
            "3: clientConnection.contentType: is not supported yet; only \"application/json\" is: leave it out",
        ),
        (
            "leaderElection: {renewDeadline: 15s}",
            "3: leaderElection.renewDeadline: must be less than leaseDuration",
        ),
        (
            "leaderElection: {resourceLock: endpoints}",
            "3: leaderElection.resourceLock: only \"leases\" is supported",
        ),
        ("enableProfiling: true", "3: enableProfiling: is not supported yet; only false is"),
        ("delayCacheUntilActive: true", "3: delayCacheUntilActive: is not supported yet; only false is"),
        ("extenders:\n- urlPrefix: http://x", "3: extenders: is not supported yet; leave it out"),
        ("healthzBindAddress: 0.0.0.0", "3: healthzBindAddress: unknown field"),
        ("featureGates: {}", "3: featureGates: unknown field"),
        (
            "profiles:\n- schedulerName: a\n- plugins: {}",
            "5: profiles[1].schedulerName: must be set where there are several profiles",
        ),
        (
            "profiles:\n- schedulerName: a\n- schedulerName: a",
            "5: profiles[1].schedulerName: \"a\" is that of a profile before it",
        ),
        (
            "profiles:\n- percentageOfNodesToScore: -1",
            "4: profiles[0].percentageOfNodesToScore: must be 0 to 100; 0 depends on the number of nodes",
        ),
    ]);
    let old = "apiVersion: kubescheduler.config.k8s.io/v1beta3\nkind: KubeSchedulerConfiguration\n";
    let error = load("s.yaml", old).unwrap_err().to_string();
    assert_eq!(error, "s.yaml:1: apiVersion: must be kubescheduler.config.k8s.io/v1");
    assert!(recognizes(old) && !recognizes("kind: Configuration\n") && !recognizes("{"));
}

#[test]
fn plugins_that_cannot_run_are_refused_by_name() {
    let all = "SchedulingGates, PrioritySort, NodeName, NodeUnschedulable, TaintToleration, NodeAffinity, NodePorts, \
               NodeResourcesFit, PodTopologySpread, DefaultPreemption, NodeResourcesBalancedAllocation, DefaultBinder";
    let unknown =
        format!("3: profiles[0].plugins.multiPoint.enabled[0]: unknown plugin \"OfMyOwn\"; there are {all}");
    check(&[
        ("profiles: [{plugins: {multiPoint: {enabled: [{name: OfMyOwn}]}}}]", &unknown),
        (
            "profiles: [{plugins: {multiPoint: {enabled: [{name: VolumeBinding}]}}}]",
            "3: profiles[0].plugins.multiPoint.enabled[0]: the plugin \"VolumeBinding\" is not supported yet; leave it out",
        ),
        (
            "profiles: [{plugins: {score: {enabled: [{name: NodeResourceFit}]}}}]",
            "3: profiles[0].plugins.score.enabled[0]: unknown plugin \"NodeResourceFit\"; did you mean \"NodeResourcesFit\"?",
        ),
        (
            "profiles: [{plugins: {score: {disabled: [{name: NodeResourceFit}]}}}]",
            "3: profiles[0].plugins.score.disabled[0]: unknown plugin \"NodeResourceFit\"; did you mean \"NodeResourcesFit\"?",
        ),
        (
            "profiles: [{plugins: {score: {enabled: [{name: NodePorts}]}}}]",
            "3: profiles[0].plugins.score.enabled[0]: NodePorts does not run at score; it runs at preFilter, filter",
        ),
        (
            "profiles: [{plugins: {score: {enabled: [{name: NodeAffinity}, {name: NodeAffinity}]}}}]",
            "3: profiles[0].plugins.score.enabled[1]: \"NodeAffinity\" is listed twice",
        ),
        (
            "profiles: [{plugins: {score: {enabled: [{name: NodeAffinity, weight: -1}]}}}]",
            "3: profiles[0].plugins.score.enabled[0].weight: must not be negative, nor more than 2147483647",
        ),
        (
            "profiles: [{plugins: {filter: {enabled: [{name: NodeAffinity, weight: 2}]}}}]",
            "3: profiles[0].plugins.filter.enabled[0].weight: has no effect, since nothing is scored; leave it out",
        ),
        (
            "profiles: [{plugins: {queueSort: {disabled: [{name: '*'}]}}}]",
            "3: profiles[0].plugins.queueSort: no plugin is left; PrioritySort has to be enabled",
        ),
        (
            "profiles: [{plugins: {multiPoint: {disabled: [{name: DefaultBinder}]}}}]",
            "3: profiles[0].plugins.bind: no plugin is left; DefaultBinder has to be enabled",
        ),
        (
            "profiles: [{plugins: {preFilter: {disabled: [{name: NodePorts}]}}}]",
            "3: profiles[0].plugins.preFilter: NodePorts is needed here while it runs at filter; disable it there too",
        ),
        (
            "profiles: [{plugins: {placementScore: {enabled: [{name: X}]}}}]",
            "3: profiles[0].plugins.placementScore: is not supported yet; leave it out",
        ),
        (
            "profiles: [{plugins: {filters: {}}}]",
            "3: profiles[0].plugins.filters: unknown field; did you mean \"filter\"?",
        ),
    ]);
}

/// A table of what one plugin is told, and of what is said about it.
fn check_args(plugin: &str, table: &[(&str, &str)]) {
    for (args, expected) in table {
        let text = format!("profiles:\n- pluginConfig:\n  - name: {plugin}\n    args: {args}");
        check(&[(&text, &format!("6: profiles[0].pluginConfig[0].args{expected}"))]);
    }
}

#[test]
fn what_plugins_cannot_be_told_is_named() {
    check(&[
        (
            "profiles: [{pluginConfig: [{name: InterPodAffinity, args: {}}]}]",
            "3: profiles[0].pluginConfig[0].name: the plugin \"InterPodAffinity\" is not supported yet; leave it out",
        ),
        (
            "profiles: [{pluginConfig: [{name: NodePorts}, {name: NodePorts}]}]",
            "3: profiles[0].pluginConfig[1].name: \"NodePorts\" is listed twice",
        ),
    ]);
    check_args("NodePorts", &[("{}", ": NodePorts takes no args; leave them out")]);
    check_args(
        "NodeResourcesFit",
        &[
            ("{kind: X}", ".kind: must be NodeResourcesFitArgs"),
            ("{ignoredResource: []}", ".ignoredResource: unknown field; did you mean \"ignoredResources\"?"),
            (
                "{ignoredResourceGroups: [a/b]}",
                ".ignoredResourceGroups[0]: \"a/b\" is not a group: that is the part of a resource before its slash",
            ),
            (
                "{scoringStrategy: {type: Best}}",
                ".scoringStrategy.type: \"Best\" is not one of LeastAllocated, MostAllocated, RequestedToCapacityRatio",
            ),
            (
                "{scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 101}]}}",
                ".scoringStrategy.resources[0].weight: must be 1 to 100",
            ),
            (
                "{scoringStrategy: {type: MostAllocated, resources: [{weight: 1}]}}",
                ".scoringStrategy.resources[0].name: must name a resource",
            ),
            (
                "{scoringStrategy: {type: MostAllocated, requestedToCapacityRatio: {}}}",
                ".scoringStrategy.requestedToCapacityRatio: belongs to the type RequestedToCapacityRatio alone",
            ),
            (
                "{scoringStrategy: {type: RequestedToCapacityRatio}}",
                ".scoringStrategy.requestedToCapacityRatio.shape: must have at least one point, such as {utilization: 0, score: 0}",
            ),
            (
                "{scoringStrategy: {type: RequestedToCapacityRatio, requestedToCapacityRatio: {shape: [{utilization: 5, score: 1}, {utilization: 5, score: 1}]}}}",
                ".scoringStrategy.requestedToCapacityRatio.shape[1].utilization: must be more than that of the point before",
            ),
            (
                "{scoringStrategy: {type: RequestedToCapacityRatio, requestedToCapacityRatio: {shape: [{utilization: 5, score: 11}]}}}",
                ".scoringStrategy.requestedToCapacityRatio.shape[0].score: must be 0 to 10",
            ),
        ],
    );
    check_args(
        "NodeResourcesBalancedAllocation",
        &[
            ("{resources: [{name: cpu, weight: 2}]}", ".resources[0].weight: must be 1"),
            ("{resources: [{name: cpu}, {name: cpu}]}", ".resources[1].name: \"cpu\" is listed twice"),
        ],
    );
    check_args(
        "DefaultPreemption",
        &[
            ("{minCandidateNodesPercentage: 101}", ".minCandidateNodesPercentage: must be 0 to 100"),
            ("{minCandidateNodesAbsolute: -1}", ".minCandidateNodesAbsolute: must be 0 to 2147483647"),
            (
                "{minCandidateNodesPercentage: 0, minCandidateNodesAbsolute: 0}",
                ".minCandidateNodesPercentage: must not be 0 while minCandidateNodesAbsolute is",
            ),
        ],
    );
}

#[test]
fn constraints_in_what_plugins_are_told_are_checked() {
    let zone = "maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule";
    let twice = format!("{{defaultingType: List, defaultConstraints: [{{{zone}}}, {{{zone}}}]}}");
    let selecting =
        format!("{{defaultingType: List, defaultConstraints: [{{{zone}, labelSelector: {{}}}}]}}");
    let of_system = format!("{{defaultConstraints: [{{{zone}}}]}}");
    check_args(
        "PodTopologySpread",
        &[
            ("{defaultingType: None}", ".defaultingType: \"None\" is not one of System, List"),
            (&of_system, ".defaultConstraints: need defaultingType: List; with System they have to be empty"),
            (&twice, ".defaultConstraints[1]: has the topologyKey and whenUnsatisfiable of one before it"),
            (
                &selecting,
                ".defaultConstraints[0].labelSelector: must be left out; which pods count follows from the owner of each pod",
            ),
            (
                "{defaultingType: List, defaultConstraints: [{maxSkew: 0, topologyKey: a, whenUnsatisfiable: DoNotSchedule}]}",
                ".defaultConstraints[0].maxSkew: must be more than 0",
            ),
        ],
    );
    let required = |term: &str| {
        format!(
            "{{addedAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: {{nodeSelectorTerms: [{term}]}}}}}}"
        )
    };
    let terms = ".addedAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms";
    let table = [
        (required(""), format!("{terms}: must have at least one term")),
        (
            required("{matchExpressions: [{key: a, operator: In}]}"),
            format!("{terms}[0].matchExpressions[0]: In and NotIn need values"),
        ),
        (
            required("{matchExpressions: [{key: a, operator: Gt, values: [x]}]}"),
            format!("{terms}[0].matchExpressions[0]: Gt and Lt need one value, a whole number"),
        ),
        (
            required("{matchFields: [{key: spec.x, operator: In, values: [x]}]}"),
            format!("{terms}[0].matchFields[0]: must be metadata.name with In or NotIn and one value"),
        ),
        (
            required("{matchExpressions: [{key: a, operator: Near}]}"),
            format!("{terms}: \"Near\" is not one of In, NotIn, Exists, DoesNotExist, Gt, Lt"),
        ),
        (
            "{addedAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 0, preference: {}}]}}".to_owned(),
            ".addedAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight: must be 1 to 100".to_owned(),
        ),
    ];
    for (args, expected) in &table {
        check_args("NodeAffinity", &[(args, expected)]);
    }
}
