//! What a controller tells over HTTP: its metrics.

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

/// More connections than anybody needs who reads metrics; others wait.
const MOST_CONNECTIONS: usize = 64;

/// Answers until the future is dropped.
pub async fn serve(listener: TcpListener, counts: Arc<RequestCounts>) -> Infallible {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if connections.len() < MOST_CONNECTIONS => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(connection(stream, counts.clone()));
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

async fn connection(stream: TcpStream, counts: Arc<RequestCounts>) {
    let service = service_fn(move |request: Request<Incoming>| {
        let answer = answer(request.method(), request.uri().path(), &counts);
        async move { Ok::<_, Infallible>(answer) }
    });
    if let Err(error) = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await {
        tracing::debug!(%error, "a connection ended");
    }
}

fn answer(method: &Method, path: &str, counts: &RequestCounts) -> Response<Full<Bytes>> {
    let (status, kind, text) = match (method, path) {
        (&Method::GET | &Method::HEAD, "/metrics") => {
            (StatusCode::OK, METRICS_CONTENT_TYPE, counts.metrics().text())
        }
        (_, "/metrics") => (StatusCode::METHOD_NOT_ALLOWED, "text/plain", "use GET\n".to_owned()),
        _ => (StatusCode::NOT_FOUND, "text/plain", "there is only /metrics\n".to_owned()),
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
    fn only_metrics_are_answered() {
        let counts = RequestCounts::default();
        let status = |method, path| answer(&method, path, &counts).status().as_u16();
        assert_eq!(status(Method::GET, "/metrics"), 200);
        assert_eq!(status(Method::POST, "/metrics"), 405);
        assert_eq!(status(Method::GET, "/"), 404);
    }
}
