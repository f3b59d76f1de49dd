//! Ports of the node that a pod takes for itself.

use gangway_model::constraints::{HostPort, Protocol};
use k8s_openapi::api::core::v1 as core;

use super::constraints::{ConstraintsError, unknown};

/// The host ports of a pod. An init container has ended when the others run, so its ports count only if it stays.
pub fn host_ports(pod: &core::PodSpec) -> Result<Vec<HostPort>, ConstraintsError> {
    let containers = pod.containers.iter().enumerate().map(|(index, c)| ("containers", index, c));
    let init = pod.init_containers.iter().flatten().enumerate();
    let sidecars = init.filter(|(_, container)| container.restart_policy.as_deref() == Some("Always"));
    let sidecars = sidecars.map(|(index, c)| ("initContainers", index, c));
    let mut ports = Vec::new();
    for (list, index, container) in containers.chain(sidecars) {
        for (at, port) in container.ports.iter().flatten().enumerate() {
            let Some(number) = port.host_port.filter(|number| *number != 0) else { continue };
            let path = || format!("{list}[{index}].ports[{at}].protocol");
            let protocol = match port.protocol.as_deref() {
                None | Some("" | "TCP") => Protocol::Tcp,
                Some("UDP") => Protocol::Udp,
                Some("SCTP") => Protocol::Sctp,
                Some(other) => return Err(unknown(path(), other, "TCP, UDP, SCTP")),
            };
            let ip = port.host_ip.as_deref().filter(|ip| !ip.is_empty()).unwrap_or(HostPort::ANY_IP);
            ports.push(HostPort { ip: ip.to_owned(), protocol, port: number });
        }
    }
    Ok(ports)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn ports() {
        let port = |ip: &str, protocol, port| HostPort { ip: ip.to_owned(), protocol, port };
        let container = |ports: Value| json!({"name": "c", "ports": ports});
        let one = |ports: Value| json!({"containers": [container(ports)]});
        let any = |number| port("0.0.0.0", Protocol::Tcp, number);
        let table = [
            (json!({"containers": [{"name": "c"}]}), Ok(vec![])),
            (one(json!([{"containerPort": 80}, {"containerPort": 81, "hostPort": 0}])), Ok(vec![])),
            (one(json!([{"containerPort": 80, "hostPort": 8080}])), Ok(vec![any(8080)])),
            (
                one(json!([{"containerPort": 80, "hostPort": 8080, "hostIP": "", "protocol": ""}])),
                Ok(vec![any(8080)]),
            ),
            (
                one(json!([{"containerPort": 1, "hostPort": 53, "protocol": "UDP", "hostIP": "10.0.0.1"},
                           {"containerPort": 2, "hostPort": 54, "protocol": "SCTP"}])),
                Ok(vec![port("10.0.0.1", Protocol::Udp, 53), port("0.0.0.0", Protocol::Sctp, 54)]),
            ),
            (
                json!({"initContainers": [
                        {"name": "i", "ports": [{"containerPort": 1, "hostPort": 1}]},
                        {"name": "s", "restartPolicy": "Always", "ports": [{"containerPort": 2, "hostPort": 2}]}],
                       "containers": [container(json!([{"containerPort": 3, "hostPort": 3}]))]}),
                Ok(vec![any(3), any(2)]),
            ),
            (
                one(json!([{"containerPort": 1}, {"containerPort": 1, "hostPort": 1, "protocol": "QUIC"}])),
                Err("containers[0].ports[1].protocol: \"QUIC\" is not one of TCP, UDP, SCTP".to_owned()),
            ),
        ];
        for (pod, expected) in table {
            let read = host_ports(&serde_json::from_value(pod.clone()).unwrap());
            assert_eq!(read.map_err(|error| error.to_string()), expected, "{pod}");
        }
    }
}
