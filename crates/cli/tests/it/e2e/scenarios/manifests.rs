//! The golden manifests: what the API has to accept, and what it has to refuse.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

use crate::e2e::scene::Scene;
use crate::tidy::{files_below, workspace_root};

/// Manifests that are `valid` or `invalid`.
fn golden(which: &str) -> Vec<PathBuf> {
    files_below(&workspace_root().join("crates/api/tests/manifests").join(which))
}

pub async fn golden_manifests(scene: &Scene) -> Result<()> {
    let (valid, invalid) = (golden("valid"), golden("invalid"));
    ensure!(!valid.is_empty() && !invalid.is_empty(), "there are golden manifests of both sorts");
    for file in valid {
        let text = std::fs::read_to_string(&file)?;
        scene.create(&text).await.with_context(|| format!("{} was refused", file.display()))?;
    }
    for file in invalid {
        let text = std::fs::read_to_string(&file)?;
        scene.refusal(&text).await.with_context(|| format!("{} is invalid", file.display()))?;
    }
    Ok(())
}
