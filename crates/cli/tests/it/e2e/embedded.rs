//! placeholder
use super::world::World;
use anyhow::Result;
pub async fn start() -> Result<World> {
    anyhow::bail!("not yet")
}
