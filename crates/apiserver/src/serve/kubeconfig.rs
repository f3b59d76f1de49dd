//! The file with which clients come in.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use serde_json::json;

use crate::ids::random_bytes;

const NAME: &str = "gangway";

/// A kubeconfig as JSON, which is YAML too.
pub(super) fn render(address: SocketAddr, authority_pem: &str, token: &str) -> String {
    let authority = base64(authority_pem.as_bytes());
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{
            "name": NAME,
            "cluster": {"server": format!("https://{address}"), "certificate-authority-data": authority},
        }],
        "users": [{"name": NAME, "user": {"token": token}}],
        "contexts": [{"name": NAME, "context": {"cluster": NAME, "user": NAME, "namespace": "default"}}],
        "current-context": NAME,
    });
    format!("{config:#}\n")
}

/// Writes the file whole or not at all, readable by its owner only from its first moment.
pub(super) fn write(path: &Path, config: &str) -> io::Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(directory)?;
    let suffix: String = random_bytes::<8>().iter().map(|byte| format!("{byte:02x}")).collect();
    let scratch = directory.join(format!(".kubeconfig-{suffix}"));
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&scratch)
        .and_then(|mut file| file.write_all(config.as_bytes()).and_then(|()| file.sync_all()))
        .and_then(|()| fs::rename(&scratch, path));
    if written.is_err() {
        // The first error is the one to tell.
        let _ = fs::remove_file(&scratch);
    }
    written
}

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

fn base64(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let group =
            chunk.iter().fold(0_u32, |group, byte| group << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for position in 0..4 {
            let sextet = (group >> (18 - 6 * position)) & 0x3f;
            out.push(if position <= chunk.len() { char::from(BASE64[sextet as usize]) } else { '=' });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::base64;

    #[test]
    fn base64_of_all_lengths() {
        let pairs = [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")];
        for (plain, encoded) in pairs {
            assert_eq!(base64(plain.as_bytes()), encoded);
        }
    }
}
