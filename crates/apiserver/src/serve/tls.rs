//! An authority and a certificate of its own, made at each start.

use std::net::IpAddr;
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use super::ServeError;

pub(super) struct Identity {
    pub(super) authority_pem: String,
    pub(super) config: Arc<ServerConfig>,
}

fn failed(error: impl std::fmt::Display) -> ServeError {
    ServeError::Certificate(error.to_string())
}

/// Certificates that are good for `address`.
pub(super) fn identity(address: IpAddr) -> Result<Identity, ServeError> {
    let authority_key = KeyPair::generate().map_err(failed)?;
    let mut authority = CertificateParams::new(Vec::<String>::new()).map_err(failed)?;
    authority.distinguished_name.push(DnType::CommonName, "gangway");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    let authority_pem = authority.self_signed(&authority_key).map_err(failed)?.pem();
    let issuer = Issuer::new(authority, authority_key);

    let key = KeyPair::generate().map_err(failed)?;
    let mut server = CertificateParams::new(vec!["localhost".to_owned()]).map_err(failed)?;
    server.distinguished_name.push(DnType::CommonName, "gangway-apiserver");
    server.subject_alt_names.push(SanType::IpAddress(address));
    server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let certificate = server.signed_by(&key, &issuer).map_err(failed)?;

    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(failed)?
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .map_err(failed)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Identity { authority_pem, config: Arc::new(config) })
}
