//! The golden manifests of `crates/api`: what the API has to accept, and what it has to refuse.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use crate::e2e::kinds::Kind;
use crate::e2e::objects::name;
use crate::e2e::scene::{Scene, refusal};
use crate::tidy::{files_below, workspace_root};

/// The objects of one manifest, under a name of their own in the namespace of the scene.
struct Manifest {
    file: String,
    /// What the refusal has to say; the first line of the file.
    expected: String,
    objects: Vec<Value>,
}

impl Manifest {
    fn is_refused<T>(&self, answer: Result<T>) -> Result<()> {
        let message = refusal(answer).with_context(|| format!("{} is invalid", self.file))?;
        ensure!(message.contains(&self.expected), "{}: {message} does not say: {}", self.file, self.expected);
        Ok(())
    }
}

/// The manifests of one sort: `valid`, `invalid`, or `updates` from a valid object to an invalid one.
fn golden(scene: &Scene, sort: &str) -> Result<Vec<Manifest>> {
    let files = files_below(&workspace_root().join("crates/api/tests/manifests").join(sort));
    ensure!(!files.is_empty(), "there are {sort} golden manifests");
    files.iter().map(|file| read(scene, file)).collect()
}

fn read(scene: &Scene, path: &Path) -> Result<Manifest> {
    let file = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let text = std::fs::read_to_string(path).with_context(|| file.clone())?;
    let mut objects: Vec<Value> = serde_saphyr::from_multiple(&text).with_context(|| file.clone())?;
    for object in &mut objects {
        object["metadata"]["name"] = json!(scene.own(&file));
        if !object["metadata"]["namespace"].is_null() {
            object["metadata"]["namespace"] = json!(scene.name());
        }
    }
    let first = text.lines().next().unwrap_or_default();
    let expected = first.strip_prefix("# expected: ").unwrap_or_default().to_owned();
    Ok(Manifest { file, expected, objects })
}

pub async fn golden_manifests(scene: &Scene) -> Result<()> {
    for Manifest { file, objects, .. } in golden(scene, "valid")? {
        for object in objects {
            scene.create_object(object).await.with_context(|| format!("{file} is valid"))?;
        }
    }
    for manifest in golden(scene, "invalid")? {
        // What is wrong with a status cannot be seen at creation, which ignores it.
        for object in manifest.objects.iter().filter(|object| object["status"].is_null()) {
            manifest.is_refused(scene.create_object(object.clone()).await)?;
        }
    }
    for manifest in golden(scene, "updates")? {
        let [old, new] = manifest.objects.as_slice() else { bail!("{} has two objects", manifest.file) };
        // A Workload with a status of its own would have the controller change it meanwhile.
        if old["status"].is_null() && new["status"].is_null() {
            let created = scene.create_object(old.clone()).await.with_context(|| manifest.file.clone())?;
            let kind = created["kind"].as_str().unwrap_or_default();
            let (kind, _) = Kind::named(kind, "").with_context(|| format!("unknown kind {kind}"))?;
            manifest.is_refused(scene.replace_spec(kind, name(&created), &new["spec"]).await)?;
        }
    }
    Ok(())
}
