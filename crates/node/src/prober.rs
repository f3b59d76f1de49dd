//! Asks a probe's question once.

use std::path::PathBuf;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::probe::ProbeAction;
use crate::process::{Process, ProcessEvent};
use crate::shim::ProcessSpec;

/// What an exec probe needs of the container that it asks.
#[derive(Clone, Debug)]
pub struct ProbedContainer {
    pub shim_program: PathBuf,
    pub label: String,
    /// The container's own process: its environment and working directory are the probe's.
    pub spec: ProcessSpec,
}

/// Whether the probe succeeds within `limit`. A command that takes longer is killed.
pub async fn ask(action: &ProbeAction, limit: Duration, container: &ProbedContainer) -> bool {
    let answer = async {
        match action {
            ProbeAction::Exec(command) => exec(command, container).await,
            ProbeAction::Tcp(port) => TcpStream::connect(("127.0.0.1", *port)).await.is_ok(),
            ProbeAction::Http { port, path, headers } => {
                http_status(*port, path, headers).await.is_some_and(|status| (200..400).contains(&status))
            }
        }
    };
    timeout(limit, answer).await.unwrap_or(false)
}

async fn exec(command: &[String], container: &ProbedContainer) -> bool {
    let spec =
        ProcessSpec { command: command.to_vec(), log_file: None, exit_file: None, ..container.spec.clone() };
    let (sender, receiver) = oneshot::channel();
    let mut sender = Some(sender);
    let on_event = move |event| {
        if let ProcessEvent::Exited(record) = event
            && let Some(sender) = sender.take()
        {
            let _ = sender.send(record.exit_code == 0);
        }
    };
    // Kept until the answer is there: dropping it kills the command.
    let Ok(_process) = Process::spawn(&container.shim_program, &container.label, &spec, on_event) else {
        return false;
    };
    receiver.await.unwrap_or(false)
}

/// The status code of a GET, which is all that a probe looks at.
async fn http_status(port: u16, path: &str, headers: &[(String, String)]) -> Option<u16> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.ok()?;
    let mut request = format!("GET /{} HTTP/1.1\r\nConnection: close\r\n", path.trim_start_matches('/'));
    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
        request.push_str(&format!("Host: 127.0.0.1:{port}\r\n"));
    }
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    request.push_str("\r\n");
    stream.write_all(request.as_bytes()).await.ok()?;
    // "HTTP/1.1 200": the code is the second word and ends within the first twelve bytes.
    let mut start = [0; 12];
    stream.read_exact(&mut start).await.ok()?;
    std::str::from_utf8(&start).ok()?.strip_prefix("HTTP/")?.split(' ').nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn http_probes_read_the_status_code() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let serve = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = vec![0; 1024];
            let length = stream.read(&mut request).await.unwrap();
            stream.write_all(b"HTTP/1.1 503 Service Unavailable\r\n\r\n").await.unwrap();
            String::from_utf8(request[..length].to_vec()).unwrap()
        };
        let headers = [("X-Probe".to_owned(), "yes".to_owned())];
        let (status, request) = tokio::join!(http_status(port, "/health", &headers), serve);
        assert_eq!(status, Some(503));
        assert!(
            request.starts_with("GET /health HTTP/1.1\r\n") && request.contains("X-Probe: yes\r\n"),
            "{request}"
        );
    }
}
