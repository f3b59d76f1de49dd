//! Admission policies are watched and kept up to date, on an API that was taught their kinds.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use gangway_api::config::{Configuration, load};
use gangway_api::{CustomResourceDefinition, policies};
use gangway_apiserver::ApiServer;
use gangway_controller::policies::{Standing, keep};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client};
use serde_json::{Value, json};

const GROUP: &str = "admissionregistration.k8s.io";
const KINDS: [&str; 4] = [
    "MutatingAdmissionPolicy",
    "MutatingAdmissionPolicyBinding",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
];

async fn teach(client: &Client) {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for (kind, plural) in KINDS.iter().zip(policies::PLURALS) {
        let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let definition = json!({
            "metadata": {"name": format!("{plural}.{GROUP}")},
            "spec": {
                "group": GROUP, "scope": "Cluster",
                "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
            },
        });
        let definition = serde_json::from_value(definition).expect("a definition");
        api.create(&PostParams::default(), &definition).await.expect("it is accepted");
    }
}

fn api(client: &Client, kind: &str) -> Api<DynamicObject> {
    Api::all_with(client.clone(), &ApiResource::from_gvk(&GroupVersionKind::gvk(GROUP, "v1", kind)))
}

async fn install(client: &Client, configuration: &Configuration) {
    for object in policies::objects(configuration) {
        let api = api(client, object["kind"].as_str().expect("a kind"));
        let object = serde_json::from_value(object).expect("an object");
        api.create(&PostParams::default(), &object).await.expect("it is created");
    }
}

async fn suspend_policy(client: &Client) -> Value {
    api(client, KINDS[0]).get(policies::SUSPEND).await.expect("the policy").data["spec"].clone()
}

fn wanted(configuration: &Configuration) -> Value {
    let objects = policies::objects(configuration);
    objects.into_iter().find(|object| object["metadata"]["name"] == policies::SUSPEND).expect("a policy")["spec"]
        .clone()
}

fn unnamed() -> Configuration {
    let text =
        "apiVersion: config.kueue.x-k8s.io/v1beta1\nkind: Configuration\nmanageJobsWithoutQueueName: true\n";
    load("c.yaml", text).expect("a configuration")
}

type Told = Rc<RefCell<Vec<Standing>>>;

fn keeping(client: &Client, configuration: &Configuration) -> (impl Future<Output = ()> + use<>, Told) {
    let told = Told::default();
    let hears = Rc::clone(&told);
    let keep = keep(client.clone(), configuration.clone(), move |standing| {
        hears.borrow_mut().push(standing.clone())
    });
    let keep = async move {
        keep.await;
    };
    (keep, told)
}

async fn until(holds: impl AsyncFn() -> bool) {
    while !holds().await {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_api_without_policies_is_said() {
    let server = ApiServer::builder().build();
    let (keep, told) = keeping(&server.client(), &Configuration::default());
    tokio::select! {
        () = keep => {}
        () = until(async || *told.borrow() == [Standing::NotServed]) => {}
    }
}

#[tokio::test(start_paused = true)]
async fn policies_follow_the_configuration_and_are_put_right() {
    let server = ApiServer::builder().build();
    let client = server.client();
    teach(&client).await;
    install(&client, &Configuration::default()).await;
    let (keep, told) = keeping(&client, &unnamed());
    let play = async {
        until(async || told.borrow().last() == Some(&Standing::InForce)).await;
        assert_eq!(suspend_policy(&client).await, wanted(&unnamed()), "the configuration says so");
        let change = json!({"spec": {"matchConditions": [{"name": "never", "expression": "false"}]}});
        let policies = api(&client, KINDS[0]);
        policies.patch(policies::SUSPEND, &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
        until(async || suspend_policy(&client).await == wanted(&unnamed())).await;
    };
    tokio::select! {
        () = keep => {}
        () = play => {}
    }
    assert!(told.borrow().iter().all(|standing| *standing == Standing::InForce), "{:?}", told.borrow());
}

#[tokio::test(start_paused = true)]
async fn what_somebody_takes_away_stays_away_and_is_said() {
    let server = ApiServer::builder().build();
    let client = server.client();
    teach(&client).await;
    install(&client, &Configuration::default()).await;
    let (keep, told) = keeping(&client, &Configuration::default());
    let play = async {
        until(async || told.borrow().last() == Some(&Standing::InForce)).await;
        let bindings = api(&client, KINDS[1]);
        bindings.delete(policies::SUSPEND, &DeleteParams::default()).await.unwrap();
        let missing = Standing::Missing(vec![format!("{}/{}", policies::PLURALS[1], policies::SUSPEND)]);
        until(async || told.borrow().last() == Some(&missing)).await;
        api(&client, KINDS[0]).delete(policies::DEFAULT_QUEUE, &DeleteParams::default()).await.unwrap();
        until(async || told.borrow().len() == 3).await;
        assert!(bindings.get_opt(policies::SUSPEND).await.unwrap().is_none(), "nobody brings it back");
    };
    tokio::select! {
        () = keep => {}
        () = play => {}
    }
}
