//! What a controller tells over HTTP: its metrics, and whether it is well.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::workloads::{METRICS_CONTENT_TYPE, RequestCounts};

/// Somebody who has something to tell.
pub trait Page: Send + Sync + 'static {
    /// All metrics, in the form of OpenMetrics.
    fn metrics_text(&self) -> String;

    /// Whether it does its work, or waits for its turn to.
    fn is_ready(&self) -> bool {
        true
    }
}

impl Page for RequestCounts {
    fn metrics_text(&self) -> String {
        self.metrics().text()
    }
}

/// More connections than anybody needs who reads metrics; others wait.
const MOST_CONNECTIONS: usize = 64;

/// Answers until the future is dropped.
pub async fn serve<P: Page>(listener: TcpListener, page: Arc<P>) -> Infallible {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if connections.len() < MOST_CONNECTIONS => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(connection(stream, Arc::clone(&page)));
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    // Out of file handles is not over at once.
                    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn connection<P: Page>(stream: TcpStream, page: Arc<P>) {
    let service = service_fn(move |request: Request<Incoming>| {
        let answer = answer(request.method(), request.uri().path(), page.as_ref());
        async move { Ok::<_, Infallible>(answer) }
    });
    if let Err(error) = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await {
        tracing::debug!(%error, "a connection ended");
    }
}

const PATHS: [&str; 3] = ["/metrics", "/healthz", "/readyz"];

fn answer(method: &Method, path: &str, page: &dyn Page) -> Response<Full<Bytes>> {
    let is_read = matches!(*method, Method::GET | Method::HEAD);
    let plain = |status, text: &str| (status, "text/plain", text.to_owned());
    let (status, kind, text) = match path {
        path if !is_read && PATHS.contains(&path) => plain(StatusCode::METHOD_NOT_ALLOWED, "use GET\n"),
        "/metrics" => (StatusCode::OK, METRICS_CONTENT_TYPE, page.metrics_text()),
        "/readyz" if !page.is_ready() => plain(StatusCode::SERVICE_UNAVAILABLE, "not ready\n"),
        "/healthz" | "/readyz" => plain(StatusCode::OK, "ok\n"),
        _ => plain(StatusCode::NOT_FOUND, "there are only /metrics, /healthz and /readyz\n"),
    };
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_and_health_are_answered() {
        let counts = RequestCounts::default();
        let status = |method, path| answer(&method, path, &counts).status().as_u16();
        assert_eq!(status(Method::GET, "/metrics"), 200);
        assert_eq!(status(Method::POST, "/metrics"), 405);
        assert_eq!(status(Method::GET, "/"), 404);
        assert_eq!(status(Method::GET, "/healthz"), 200);
        assert_eq!(status(Method::GET, "/readyz"), 200);
        assert_eq!(status(Method::DELETE, "/readyz"), 405);
    }
}
