//! The node agent on the embedded API, with real processes.

use std::time::Duration;

use gangway_node::{NodeOptions, run_node};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use kube::runtime::wait::await_condition;
use serde_json::json;
use tokio::sync::oneshot;

use crate::Test;
use crate::support::{World, condition, own_program, processes_with, sendable, terminated};

pub const TESTS: &[Test] = &[
    ("agent::a_pod_runs_and_its_exit_code_and_log_are_kept", || on_a_node(exit_code_and_log)),
    ("agent::a_pod_that_starts_and_ends_costs_two_writes", || on_a_node(two_writes)),
    ("agent::a_readiness_probe_flips_ready", || on_a_node(readiness)),
    ("agent::a_failing_liveness_probe_restarts_the_container", || on_a_node(liveness)),
    ("agent::sigterm_then_grace_then_sigkill", || on_a_node(grace_then_kill)),
    ("agent::a_deleted_pod_that_listens_goes_at_once", || on_a_node(deleted_pod_goes)),
    ("agent::other_images_are_refused", || on_a_node(wrong_image)),
    ("agent::nothing_of_our_environment_leaks", || on_a_node(environment)),
    ("agent::init_containers_volumes_and_several_containers", || on_a_node(init_and_volumes)),
    ("agent::a_missing_config_map_is_waited_for", || on_a_node(missing_config_map)),
    ("agent::a_failed_container_is_restarted", || on_a_node(restart)),
    ("agent::a_command_that_does_not_exist_says_so", || on_a_node(no_such_command)),
    ("agent::a_pod_that_is_too_slow_fails", || on_a_node(active_deadline)),
    ("agent::shutdown_ends_every_process", shutdown_ends_every_process),
    ("agent::pods_of_an_earlier_agent_are_lost", pods_of_an_earlier_agent_are_lost),
];

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

fn options(world: &World) -> NodeOptions {
    NodeOptions::new("here", world.directory.path().to_owned(), own_program())
}

/// Runs `test` beside an agent, which is ended afterwards.
fn on_a_node<F: Future<Output = ()>>(test: impl FnOnce(std::rc::Rc<World>) -> F) {
    runtime().block_on(async {
        let world = std::rc::Rc::new(World::new());
        let (end, ended) = oneshot::channel::<()>();
        let node = run_node(world.client.clone(), world.clock.clone(), options(&world), async move {
            let _ = ended.await;
        });
        let test = async {
            test(world.clone()).await;
            drop(end);
        };
        let node = async { sendable(node).await.unwrap() };
        tokio::join!(node, test);
    });
}

type Shared = std::rc::Rc<World>;

async fn exit_code_and_log(world: Shared) {
    world.create_script("p", "echo hi; echo there >&2; exit 3").await;
    let pod = world.wait_for_phase("p", "Failed").await;
    let end = terminated(&pod);
    assert_eq!((end.exit_code, end.reason.as_deref()), (3, Some("Error")));
    assert_eq!(world.log(&pod), "hi\nthere\n");
    assert_eq!(condition(&pod, "Ready").as_deref(), Some("False"));
    world.create_script("q", "true").await;
    let pod = world.wait_for_phase("q", "Succeeded").await;
    assert_eq!(terminated(&pod).reason.as_deref(), Some("Completed"));
    let directories = std::fs::read_dir(world.directory.path().join("pods")).unwrap().count();
    assert!(directories <= 1, "the directories of finished pods are removed");
    let node: Api<Node> = Api::all(world.client.clone());
    let node = node.get("here").await.unwrap();
    let status = node.status.unwrap();
    assert!(status.conditions.unwrap().iter().any(|it| it.type_ == "Ready" && it.status == "True"));
    assert!(status.allocatable.unwrap().contains_key("memory"));
}

async fn two_writes(world: Shared) {
    let before = status_writes(&world);
    world.create_script("p", "while [ ! -e stop ]; do sleep 0.01; done").await;
    let pod = world.wait_for_phase("p", "Running").await;
    assert_eq!(condition(&pod, "Ready").as_deref(), Some("True"));
    let uid = pod.metadata.uid.as_deref().unwrap();
    let own = world.directory.path().join(format!("pods/default_p_{uid}/containers/main"));
    std::fs::write(own.join("stop"), "").unwrap();
    world.wait_for_phase("p", "Succeeded").await;
    assert_eq!(status_writes(&world) - before, 2);
}

fn status_writes(world: &World) -> u64 {
    let counts = world.server.request_counts();
    counts
        .iter()
        .filter(|(key, _)| format!("{key:?}").contains("pods") && is_patch(key))
        .map(|(_, count)| count)
        .sum()
}

fn is_patch(key: &gangway_apiserver::RequestKey) -> bool {
    format!("{key:?}").to_ascii_lowercase().contains("patch")
}

async fn readiness(world: Shared) {
    let probe =
        json!({"exec": {"command": ["test", "-e", "good"]}, "periodSeconds": 1, "failureThreshold": 1});
    let container =
        json!({"name": "main", "image": "host", "command": ["sleep", "1000"], "readinessProbe": probe});
    world.create("p", "here", json!({"spec": {"containers": [container]}})).await;
    let pod = world.wait_for_phase("p", "Running").await;
    assert_eq!(condition(&pod, "Ready").as_deref(), Some("False"));
    let uid = pod.metadata.uid.as_deref().unwrap();
    let good = world.directory.path().join(format!("pods/default_p_{uid}/containers/main/good"));
    std::fs::write(&good, "").unwrap();
    world.wait("p", "ready", |pod| condition(pod, "Ready").as_deref() == Some("True")).await;
    std::fs::remove_file(&good).unwrap();
    world.wait("p", "not ready", |pod| condition(pod, "Ready").as_deref() == Some("False")).await;
}

async fn liveness(world: Shared) {
    let probe =
        json!({"exec": {"command": ["test", "-e", "none"]}, "periodSeconds": 1, "failureThreshold": 1});
    let container =
        json!({"name": "main", "image": "host", "command": ["sleep", "1000"], "livenessProbe": probe});
    world.create("p", "here", json!({"spec": {"restartPolicy": "Always", "containers": [container]}})).await;
    world.wait("p", "restarted", |pod| restarts(pod) == 1).await;
}

fn restarts(pod: &Pod) -> i32 {
    let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
    statuses.and_then(|all| all.first()).map_or(0, |status| status.restart_count)
}

async fn grace_then_kill(world: Shared) {
    let pod =
        world.create_script("p", "trap 'echo asked' TERM; echo ready; while :; do sleep 0.05; done").await;
    world.wait_for_phase("p", "Running").await;
    wait_for_log(&world, &pod, "ready").await;
    let params = DeleteParams { grace_period_seconds: Some(1), ..DeleteParams::default() };
    let begin = tokio::time::Instant::now();
    world.pods().delete("p", &params).await.unwrap();
    world.wait_until_gone("p").await;
    assert!(begin.elapsed() >= Duration::from_secs(1), "SIGKILL came before the grace was over");
    assert!(world.log(&pod).contains("asked"));
}

async fn wait_for_log(world: &World, pod: &Pod, text: &str) {
    let seen = async {
        while !world.log(pod).contains(text) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(crate::support::PATIENCE, seen).await.unwrap();
}

async fn deleted_pod_goes(world: Shared) {
    world.create_script("p", "sleep 1000").await;
    world.wait_for_phase("p", "Running").await;
    let begin = tokio::time::Instant::now();
    world.pods().delete("p", &DeleteParams::default()).await.unwrap();
    world.wait_until_gone("p").await;
    assert!(begin.elapsed() < Duration::from_secs(20), "the grace is a limit, not a wait");
}

async fn wrong_image(world: Shared) {
    let container = json!({"name": "main", "image": "busybox:1", "command": ["true"]});
    world.create("p", "here", json!({"spec": {"containers": [container]}})).await;
    let status = world.wait_for_phase("p", "Failed").await.status.unwrap();
    assert_eq!(status.reason.as_deref(), Some("ImageNotHost"));
    let message = status.message.unwrap();
    assert!(message.contains("busybox:1") && message.contains("image: host"), "{message}");
}

async fn environment(world: Shared) {
    let container = json!({"name": "main", "image": "host", "command": ["env"],
        "env": [{"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                {"name": "GREETING", "value": "hello $(NAME)"}]});
    world.create("p", "here", json!({"spec": {"containers": [container]}})).await;
    let pod = world.wait_for_phase("p", "Succeeded").await;
    let log = world.log(&pod);
    let mut names: Vec<&str> = log.lines().filter_map(|line| Some(line.split_once('=')?.0)).collect();
    names.retain(|name| !["PATH", "HOME", "LANG"].contains(name));
    names.sort_unstable();
    assert_eq!(names, ["GREETING", "NAME"]);
    assert!(log.contains("GREETING=hello p\n"));
}

async fn init_and_volumes(world: Shared) {
    let mount = json!([{"name": "shared", "mountPath": "data"}]);
    let script = |name: &str, script: &str| json!({"name": name, "image": "host", "command": ["sh", "-c"], "args": [script], "volumeMounts": mount});
    let init = [script("first", "echo 1 >> data/f"), script("second", "echo 2 >> $GANGWAY_VOLUME_SHARED/f")];
    let wait_for_other = "until [ -e data/other ]; do sleep 0.01; done; cat data/f";
    let mains = [script("main", wait_for_other), script("other", "touch data/other")];
    let spec =
        json!({"initContainers": init, "containers": mains, "volumes": [{"name": "shared", "emptyDir": {}}]});
    world.create("p", "here", json!({"spec": spec})).await;
    let pod = world.wait_for_phase("p", "Succeeded").await;
    assert_eq!(world.log(&pod), "1\n2\n");
    assert_eq!(pod.status.unwrap().init_container_statuses.unwrap().len(), 2);
}

async fn missing_config_map(world: Shared) {
    let container = json!({"name": "main", "image": "host", "command": ["sh", "-c", "echo $WORD"],
        "env": [{"name": "WORD", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "word"}}}]});
    world.create("p", "here", json!({"spec": {"containers": [container]}})).await;
    world.wait("p", "waiting", |pod| format!("{pod:?}").contains("CreateContainerConfigError")).await;
    let map: ConfigMap =
        serde_json::from_value(json!({"metadata": {"name": "m"}, "data": {"word": "late"}})).unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(world.client.clone(), "default");
    maps.create(&PostParams::default(), &map).await.unwrap();
    let pod = world.wait_for_phase("p", "Succeeded").await;
    assert_eq!(world.log(&pod), "late\n");
}

async fn restart(world: Shared) {
    let script = "[ -e been-here ] && exit 0; touch been-here; exit 1";
    let container = json!({"name": "main", "image": "host", "command": ["sh", "-c", script]});
    world
        .create("p", "here", json!({"spec": {"restartPolicy": "OnFailure", "containers": [container]}}))
        .await;
    let pod = world.wait_for_phase("p", "Succeeded").await;
    assert_eq!(restarts(&pod), 1);
}

async fn no_such_command(world: Shared) {
    let container = json!({"name": "main", "image": "host", "command": ["no-such-command"]});
    world.create("p", "here", json!({"spec": {"containers": [container]}})).await;
    let end = terminated(&world.wait_for_phase("p", "Failed").await);
    assert_eq!((end.exit_code, end.reason.as_deref()), (127, Some("StartError")));
    assert!(end.message.unwrap().contains("no-such-command"));
}

async fn active_deadline(world: Shared) {
    let container = json!({"name": "main", "image": "host", "command": ["sleep", "1000"]});
    world.create("p", "here", json!({"spec": {"activeDeadlineSeconds": 1, "containers": [container]}})).await;
    let pod = world.wait_for_phase("p", "Failed").await;
    assert_eq!(pod.status.unwrap().reason.as_deref(), Some("DeadlineExceeded"));
}

fn shutdown_ends_every_process() {
    runtime().block_on(async {
        let world = World::new();
        let marker = world.directory.path().to_str().unwrap().to_owned();
        let (end, ended) = oneshot::channel::<()>();
        let node = run_node(world.client.clone(), world.clock.clone(), options(&world), async move {
            let _ = ended.await;
        });
        let test = async {
            let script = "trap '' TERM; setsid sleep 1000 & sleep 1000";
            let container = json!({"name": "main", "image": "host", "command": ["sh", "-c", script],
                "env": [{"name": "MARKER", "value": marker}]});
            world.create("p", "here", json!({"spec": {"containers": [container]}})).await;
            world.wait_for_phase("p", "Running").await;
            drop(end);
        };
        let (result, ()) = tokio::join!(node, test);
        result.unwrap();
        assert_eq!(processes_with("MARKER", &marker), Vec::<u32>::new());
        let pod = world.wait_for_phase("p", "Failed").await;
        assert_eq!(pod.status.unwrap().reason.as_deref(), Some("NodeShutdown"));
    });
}

fn pods_of_an_earlier_agent_are_lost() {
    runtime().block_on(async {
        let world = World::new();
        let marker = world.directory.path().to_str().unwrap().to_owned();
        let container = json!({"name": "main", "image": "host", "command": ["sleep", "1000"],
            "env": [{"name": "MARKER", "value": marker}]});
        {
            // Dropped in the middle, as a crash would.
            let node =
                run_node(world.client.clone(), world.clock.clone(), options(&world), std::future::pending());
            let test = async {
                world.create("p", "here", json!({"spec": {"containers": [container]}})).await;
                world.wait_for_phase("p", "Running").await;
            };
            tokio::select! { _ = node => {}, () = test => {} }
        }
        let node =
            run_node(world.client.clone(), world.clock.clone(), options(&world), std::future::pending());
        let test = async {
            let pod = world.wait_for_phase("p", "Failed").await;
            assert_eq!(pod.status.unwrap().reason.as_deref(), Some("NodeRestarted"));
            let nodes: Api<Node> = Api::all(world.client.clone());
            await_condition(nodes, "here", |node: Option<&Node>| node.is_some()).await.unwrap();
            while !processes_with("MARKER", &marker).is_empty() {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::select! { _ = node => {}, () = test => {} }
    });
}
