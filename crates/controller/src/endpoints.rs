//! What a controller tells over HTTP: its metrics, whether it is well, and what it logs.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::metrics::CONTENT_TYPE;
use crate::pace::Pace;
use crate::pods::BindCounts;
use crate::pulse::Pulse;
use crate::workloads::RequestCounts;

/// Somebody who has something to tell.
pub trait Page: Send + Sync + 'static {
    /// All metrics as text, as the loop left them.
    fn metrics_text(&self, pace: &Pace) -> String;

    /// Whether it works.
    fn pulse(&self) -> &Pulse;
}

impl Page for RequestCounts {
    fn metrics_text(&self, pace: &Pace) -> String {
        self.publish();
        pace.publish(self.metrics());
        self.metrics().text()
    }

    fn pulse(&self) -> &Pulse {
        Self::pulse(self)
    }
}

impl Page for BindCounts {
    fn metrics_text(&self, pace: &Pace) -> String {
        self.publish();
        pace.publish(self.metrics().registry());
        self.metrics().registry().text()
    }

    fn pulse(&self) -> &Pulse {
        Self::pulse(self)
    }
}

/// Changes what is logged, or says what is wrong with what was asked for.
pub type SetLog = Arc<dyn Fn(&str) -> Result<(), String> + Send + Sync>;

/// What is told, and where.
pub struct Site<P> {
    /// Who tells it.
    pub page: Arc<P>,
    /// How its requests are sent.
    pub pace: Arc<Pace>,
    /// The path of readiness.
    pub readiness: String,
    /// The path of liveness.
    pub liveness: String,
    /// How to change what is logged, if that can be.
    pub set_log: Option<SetLog>,
}

impl<P> Site<P> {
    /// With the usual paths.
    pub fn new(page: Arc<P>, pace: Arc<Pace>) -> Self {
        Self { page, pace, readiness: "/readyz".to_owned(), liveness: "/healthz".to_owned(), set_log: None }
    }
}

/// More connections than anybody needs who reads metrics; others wait.
const MOST_CONNECTIONS: usize = 64;
/// A loop that has not turned for so long is stuck. Probes wait for less than that, and take it for a failure just the same.
const STUCK_AFTER: Duration = Duration::from_secs(10);
/// Numbers that are older than that are better than none.
const PATIENCE: Duration = Duration::from_secs(3);
/// Nobody asks for more than this to be logged.
const MOST_BYTES: usize = 4096;

/// Answers until the future is dropped.
pub async fn serve<P: Page>(listener: TcpListener, site: Site<P>) -> Infallible {
    let (mut connections, site) = (JoinSet::new(), Arc::new(site));
    loop {
        tokio::select! {
            accepted = listener.accept(), if connections.len() < MOST_CONNECTIONS => match accepted {
                Ok((stream, peer)) => {
                    connections.spawn(connection(stream, peer, Arc::clone(&site)));
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    // Out of file handles is not over at once.
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn connection<P: Page>(stream: TcpStream, peer: SocketAddr, site: Arc<Site<P>>) {
    let service = service_fn(move |request: Request<Incoming>| {
        let site = Arc::clone(&site);
        async move { Ok::<_, Infallible>(site.answer(request, peer).await) }
    });
    if let Err(error) = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await {
        tracing::debug!(%error, "a connection ended");
    }
}

fn respond(status: StatusCode, kind: &'static str, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
    response
}

fn plain(status: StatusCode, text: &str) -> Response<Full<Bytes>> {
    respond(status, "text/plain", format!("{text}\n"))
}

impl<P: Page> Site<P> {
    async fn answer<B>(&self, request: Request<B>, peer: SocketAddr) -> Response<Full<Bytes>>
    where
        B: Body,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
        let path = request.uri().path();
        let is_known = path == "/metrics" || path == self.liveness || path == self.readiness;
        match path {
            "/loglevel" if self.set_log.is_some() => self.set_log(request, peer).await,
            _ if is_known && !is_read => plain(StatusCode::METHOD_NOT_ALLOWED, "use GET"),
            "/metrics" => {
                self.page.pulse().beats(PATIENCE).await;
                respond(StatusCode::OK, CONTENT_TYPE, self.page.metrics_text(&self.pace))
            }
            path if path == self.liveness => match self.page.pulse().beats(STUCK_AFTER).await {
                true => plain(StatusCode::OK, "ok"),
                false => plain(StatusCode::SERVICE_UNAVAILABLE, "the loop does not turn"),
            },
            path if path == self.readiness => match self.page.pulse().is_ready() {
                true => plain(StatusCode::OK, "ok"),
                false => plain(StatusCode::SERVICE_UNAVAILABLE, "not ready: the first lists are not in"),
            },
            _ => {
                let (liveness, readiness) = (&self.liveness, &self.readiness);
                plain(StatusCode::NOT_FOUND, &format!("there are only /metrics, {liveness} and {readiness}"))
            }
        }
    }

    /// Only somebody on the same machine, or in the same pod, says what is logged.
    async fn set_log<B>(&self, request: Request<B>, peer: SocketAddr) -> Response<Full<Bytes>>
    where
        B: Body,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        if !peer.ip().to_canonical().is_loopback() {
            return plain(StatusCode::FORBIDDEN, "only from the machine itself: use kubectl port-forward");
        }
        if *request.method() != Method::PUT {
            return plain(StatusCode::METHOD_NOT_ALLOWED, "use PUT with what is to be logged, such as info");
        }
        let body = Limited::new(request.into_body(), MOST_BYTES).collect().await.map(|body| body.to_bytes());
        let text = body.ok().and_then(|body| String::from_utf8(body.to_vec()).ok());
        let (Some(text), Some(set)) = (text, &self.set_log) else {
            return plain(StatusCode::BAD_REQUEST, "that cannot be read");
        };
        match set(text.trim()) {
            Ok(()) => plain(StatusCode::OK, "ok"),
            Err(message) => plain(StatusCode::BAD_REQUEST, &message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: &str = "127.0.0.1:4000";

    fn site() -> Site<RequestCounts> {
        let set_log: SetLog = Arc::new(|text| match text {
            "debug" => Ok(()),
            _ => Err("no such level".to_owned()),
        });
        let usual = Site::new(Arc::<RequestCounts>::default(), Arc::default());
        Site { set_log: Some(set_log), readiness: "/ready".to_owned(), ..usual }
    }

    async fn ask(
        site: &Site<RequestCounts>,
        method: Method,
        path: &str,
        body: &str,
        peer: &str,
    ) -> (u16, String) {
        let request =
            Request::builder().method(method).uri(path).body(Full::<Bytes>::from(body.to_owned())).unwrap();
        let answer = site.answer(request, peer.parse().unwrap()).await;
        let code = answer.status().as_u16();
        (code, String::from_utf8(answer.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap())
    }

    #[tokio::test]
    async fn metrics_and_health_are_answered() {
        let site = site();
        for (method, path, expected) in [
            (Method::GET, "/metrics", 200),
            (Method::POST, "/metrics", 405),
            (Method::GET, "/", 404),
            (Method::GET, "/healthz", 200),
            (Method::GET, "/readyz", 404),
            (Method::GET, "/ready", 200),
            (Method::DELETE, "/ready", 405),
        ] {
            let (code, text) = ask(&site, method.clone(), path, "", HERE).await;
            assert_eq!(code, expected, "{method} {path}: {text}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_ready_when_it_knows_enough_and_alive_as_long_as_it_turns() {
        let site = site();
        let _running = site.page.pulse().begin();
        site.page.pulse().set_ready(false);
        assert_eq!(ask(&site, Method::GET, "/ready", "", HERE).await.0, 503);
        assert_eq!(ask(&site, Method::GET, "/healthz", "", HERE).await.0, 503, "nothing turns");
        assert_eq!(
            ask(&site, Method::GET, "/metrics", "", HERE).await.0,
            200,
            "numbers are told all the same"
        );
    }

    #[tokio::test]
    async fn what_is_logged_is_changed_from_here_only() {
        let site = site();
        assert_eq!(ask(&site, Method::PUT, "/loglevel", "debug\n", HERE).await.0, 200);
        assert_eq!(ask(&site, Method::PUT, "/loglevel", "debug", "[::1]:9").await.0, 200);
        assert_eq!(ask(&site, Method::PUT, "/loglevel", "debug", "10.0.0.1:9").await.0, 403);
        assert_eq!(ask(&site, Method::GET, "/loglevel", "", HERE).await.0, 405);
        assert_eq!(
            ask(&site, Method::PUT, "/loglevel", "loud", HERE).await,
            (400, "no such level\n".to_owned())
        );
        assert_eq!(ask(&site, Method::PUT, "/loglevel", &"x".repeat(5000), HERE).await.0, 400);
    }
}
