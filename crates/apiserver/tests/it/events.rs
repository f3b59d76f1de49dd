use futures::{TryStreamExt, pin_mut};
use k8s_openapi::api::core::v1::{Event, ObjectReference};
use k8s_openapi::api::events::v1::Event as SeriesEvent;
use kube::api::{Api, ListParams, WatchEvent, WatchParams};
use kube::runtime::events::{EventType, Recorder};
use serde_json::json;

use crate::support::{create, server};

#[tokio::test]
async fn what_a_recorder_writes_is_read_in_both_groups() {
    let client = server().client();
    let recorder = Recorder::new(client.clone(), "tester".into());
    let job = ObjectReference {
        api_version: Some("batch/v1".into()),
        kind: Some("Job".into()),
        name: Some("j".into()),
        namespace: Some("default".into()),
        uid: Some("u".into()),
        ..ObjectReference::default()
    };
    let event = kube::runtime::events::Event {
        type_: EventType::Normal,
        reason: "Started".into(),
        note: Some("it began".into()),
        action: "Start".into(),
        secondary: None,
    };
    recorder.publish(&event, &job).await.unwrap();
    let core: Api<Event> = Api::default_namespaced(client.clone());
    let found = core.list(&ListParams::default().fields("involvedObject.name=j")).await.unwrap().items;
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].message.as_deref(), Some("it began"));
    assert_eq!(found[0].involved_object.kind.as_deref(), Some("Job"));
    assert_eq!(found[0].reporting_component.as_deref(), Some("tester"));
    let series: Api<SeriesEvent> = Api::default_namespaced(client);
    let found = series.list(&ListParams::default().fields("regarding.name=j")).await.unwrap().items;
    assert_eq!(found[0].note.as_deref(), Some("it began"));
}

#[tokio::test]
async fn watches_speak_the_language_of_their_group() {
    let client = server().client();
    let event = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}, "message": "hello", "reason": "Why",
        "type": "Normal", "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"},
    });
    let series: Api<SeriesEvent> = Api::all(client.clone());
    let core: Api<Event> = Api::all(client.clone());
    let other = series.watch(&WatchParams::default(), "0").await.unwrap();
    let own = core.watch(&WatchParams::default(), "0").await.unwrap();
    pin_mut!(other, own);
    create(&client, "/api/v1/namespaces/default/events", &event).await;
    let seen = other.try_next().await.unwrap().unwrap();
    assert!(matches!(seen, WatchEvent::Added(event) if event.note.as_deref() == Some("hello")));
    let seen = own.try_next().await.unwrap().unwrap();
    assert!(matches!(seen, WatchEvent::Added(event) if event.message.as_deref() == Some("hello")));
}
