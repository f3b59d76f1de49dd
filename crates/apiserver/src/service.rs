//! The API server as a tower service.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::future::BoxFuture;
use gangway_model::Clock;
use http::{HeaderValue, Request, Response, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, Limited};

use crate::builtins::TemplateRule;
use crate::counts::{Counts, RequestKey};
use crate::error::ApiError;
use crate::ids::Ids;
use crate::intercept::Interceptor;
use crate::registry::Registry;
use crate::requests;
use crate::store::Store;

/// The body of every answer: whole, or a stream for watches and logs.
pub type ResponseBody = UnsyncBoxBody<Bytes, Infallible>;

/// Larger requests are refused, as a real API server does.
const MAX_BODY_BYTES: usize = 3 * 1024 * 1024;

/// Changes per kind that watchers can be behind by before they must list again.
const DEFAULT_LOG_CAPACITY: usize = 32_768;

pub(crate) fn full_body(bytes: Bytes) -> ResponseBody {
    Full::new(bytes).boxed_unsync()
}

/// Everything one server has.
pub(crate) struct Inner {
    pub(crate) store: Store,
    pub(crate) registry: Registry,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) ids: Ids,
    pub(crate) interceptors: Vec<Arc<dyn Interceptor>>,
    pub(crate) log_directory: Option<PathBuf>,
    pub(crate) template_rule: TemplateRule,
    pub(crate) counts: Counts,
}

/// A Kubernetes API. Clones are handles on the same server.
#[derive(Clone)]
pub struct ApiServer(pub(crate) Arc<Inner>);

impl fmt::Debug for ApiServer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ApiServer").finish_non_exhaustive()
    }
}

/// Settings of an [`ApiServer`].
pub struct Builder {
    clock: Arc<dyn Clock>,
    interceptors: Vec<Arc<dyn Interceptor>>,
    log_directory: Option<PathBuf>,
    seed: Option<u64>,
    log_capacity: usize,
    template_rule: TemplateRule,
}

impl fmt::Debug for Builder {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Builder").field("log_directory", &self.log_directory).finish_non_exhaustive()
    }
}

impl Builder {
    /// Where timestamps come from. Until it is given, time stands still at the epoch.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Adds code that sees objects before they are created, after the ones added before.
    #[must_use]
    pub fn interceptor(mut self, interceptor: Arc<dyn Interceptor>) -> Self {
        self.interceptors.push(interceptor);
        self
    }

    /// Where the log files of containers are.
    #[must_use]
    pub fn log_directory(mut self, directory: PathBuf) -> Self {
        self.log_directory = Some(directory);
        self
    }

    /// Makes uids and generated names a function of `seed` and the order of requests.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// How many changes per kind a watcher can be behind by.
    #[must_use]
    pub fn watch_log_capacity(mut self, changes: usize) -> Self {
        self.log_capacity = changes;
        self
    }

    /// Locks the template of a Job that has a start time, as Kubernetes did before 1.36. Its Job controller is
    /// [`crate::controllers::jobs::run_before_1_36`].
    #[must_use]
    pub fn before_1_36(mut self) -> Self {
        self.template_rule = TemplateRule::WithoutStartTime;
        self
    }

    /// The server, with the namespaces `default` and `kube-system`.
    pub fn build(self) -> ApiServer {
        let store = Store::new(self.log_capacity);
        let registry = Registry::builtin(&store);
        let server = ApiServer(Arc::new(Inner {
            store,
            registry,
            clock: self.clock,
            ids: self.seed.map_or_else(Ids::random, Ids::seeded),
            interceptors: self.interceptors,
            log_directory: self.log_directory,
            template_rule: self.template_rule,
            counts: Counts::default(),
        }));
        requests::create_initial_namespaces(&server.0);
        server
    }
}

impl ApiServer {
    /// Starts with no interceptors and without logs.
    pub fn builder() -> Builder {
        Builder {
            clock: Arc::new(gangway_model::ManualClock::new(gangway_model::Timestamp::EPOCH)),
            interceptors: Vec::new(),
            log_directory: None,
            seed: None,
            log_capacity: DEFAULT_LOG_CAPACITY,
            template_rule: TemplateRule::default(),
        }
    }

    /// A client without a socket in between, whose default namespace is `default`.
    /// Needs a running tokio runtime.
    pub fn client(&self) -> kube::Client {
        self.client_with_namespace("default")
    }

    /// The same with another default namespace.
    pub fn client_with_namespace(&self, namespace: &str) -> kube::Client {
        kube::Client::new(self.clone(), namespace)
    }

    /// A client whose requests are counted under `user_agent`.
    pub fn client_named(&self, user_agent: &str) -> kube::Client {
        let agent = HeaderValue::from_str(user_agent).ok();
        let service = tower::ServiceBuilder::new()
            .map_request(move |mut request: Request<kube::client::Body>| {
                if let Some(agent) = &agent {
                    request.headers_mut().insert(header::USER_AGENT, agent.clone());
                }
                request
            })
            .service(self.clone());
        kube::Client::new(service, "default")
    }

    /// How often who asked for what since the server was built.
    pub fn request_counts(&self) -> BTreeMap<RequestKey, u64> {
        self.0.counts.snapshot()
    }
}

impl<B> tower::Service<Request<B>> for ApiServer
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response<ResponseBody>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let server = self.0.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let response = match Limited::new(body, MAX_BODY_BYTES).collect().await {
                Ok(body) => requests::answer(&server, &parts, body.to_bytes()).await,
                Err(_) => Err(ApiError::too_large()),
            };
            Ok(response.unwrap_or_else(ApiError::into_response))
        })
    }
}
