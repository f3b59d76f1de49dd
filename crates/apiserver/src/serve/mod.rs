//! The server on a loopback port: TLS with its own authority, and a token.

mod kubeconfig;
mod tls;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use http::{Request, header};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;
use tower::Service;

use crate::error::ApiError;
use crate::ids::random_bytes;
use crate::service::ApiServer;

/// Where to listen and where to say so.
#[derive(Debug, Clone)]
pub struct ServeOptions {
    /// Port 0 takes a free port.
    pub address: SocketAddr,
    /// File to write the kubeconfig to; only its owner can read it.
    pub kubeconfig: PathBuf,
}

/// Why the server cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The port is taken or may not be used.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address that was asked for.
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// Keys or certificates could not be made.
    #[error("cannot make the server's certificate: {0}")]
    Certificate(String),
    /// The kubeconfig could not be written.
    #[error("cannot write the kubeconfig {}: {source}", path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

/// A server that listens. It stops when this is dropped.
#[derive(Debug)]
pub struct Serving {
    /// The address, with the port that was taken.
    pub address: SocketAddr,
    /// The kubeconfig that was written.
    pub kubeconfig: PathBuf,
    task: JoinHandle<()>,
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl ApiServer {
    /// Listens, and writes a kubeconfig with which to come in.
    pub async fn serve(&self, options: ServeOptions) -> Result<Serving, ServeError> {
        let wanted = options.address;
        let listen = |source| ServeError::Listen { address: wanted, source };
        let listener = TcpListener::bind(wanted).await.map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let identity = tls::identity(address.ip())?;
        let token: String = random_bytes::<32>().iter().map(|byte| format!("{byte:02x}")).collect();
        let config = kubeconfig::render(address, &identity.authority_pem, &token);
        write_kubeconfig(&options.kubeconfig, &config)?;
        let acceptor = TlsAcceptor::from(identity.config);
        let guarded = Guarded { server: self.clone(), authorization: Arc::from(format!("Bearer {token}")) };
        let task = tokio::spawn(accept(listener, acceptor, guarded));
        Ok(Serving { address, kubeconfig: options.kubeconfig, task })
    }
}

fn write_kubeconfig(path: &Path, config: &str) -> Result<(), ServeError> {
    kubeconfig::write(path, config).map_err(|source| ServeError::Kubeconfig { path: path.to_owned(), source })
}

/// Takes connections; those that are open end with this task.
async fn accept(listener: TcpListener, acceptor: TlsAcceptor, guarded: Guarded) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(connection(stream, acceptor.clone(), guarded.clone()));
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

async fn connection(stream: TcpStream, acceptor: TlsAcceptor, guarded: Guarded) {
    // Small watch events must not wait for more to send.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "a connection keeps its delay");
    }
    let stream = match acceptor.accept(stream).await {
        Ok(stream) => stream,
        Err(error) => {
            tracing::debug!(%error, "a TLS handshake failed");
            return;
        }
    };
    let builder = auto::Builder::new(TokioExecutor::new());
    let served = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(guarded)).await;
    if let Err(error) = served {
        tracing::debug!(%error, "a connection ended");
    }
}

/// The server for those who know the token.
#[derive(Clone)]
struct Guarded {
    server: ApiServer,
    authorization: Arc<str>,
}

impl Guarded {
    /// Compares in the same time wherever the first difference is.
    fn admits(&self, request: &Request<Incoming>) -> bool {
        let given = request.headers().get(header::AUTHORIZATION).map_or(&b""[..], |value| value.as_bytes());
        let wanted = self.authorization.as_bytes();
        let difference =
            given.iter().zip(wanted).fold(0, |difference, (one, other)| difference | (one ^ other));
        given.len() == wanted.len() && difference == 0
    }
}

impl Service<Request<Incoming>> for Guarded {
    type Response = <ApiServer as Service<Request<Incoming>>>::Response;
    type Error = <ApiServer as Service<Request<Incoming>>>::Error;
    type Future = <ApiServer as Service<Request<Incoming>>>::Future;

    fn poll_ready(
        &mut self,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<(), Self::Error>> {
        <ApiServer as Service<Request<Incoming>>>::poll_ready(&mut self.server, context)
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        if self.admits(&request) {
            self.server.call(request)
        } else {
            Box::pin(std::future::ready(Ok(ApiError::unauthorized().into_response())))
        }
    }
}
