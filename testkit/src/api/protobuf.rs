//! Bodies of requests in protobuf, as kubectl's `create` and `drain` and clients of client-go send them.
//!
//! Only what they send of the messages below is understood; anything else is refused by name, never dropped. Answers are JSON,
//! which all of them take.

use std::{collections::HashMap, sync::LazyLock};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::clock::written;

pub(super) const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// What each body begins with.
const MAGIC: &[u8] = b"k8s\0";

/// The messages, with the numbers of the real API. A field is of one of these: `text`, `bytes`, `int`, `bool`, `time`, `either`
/// (a number or a text), or a message; `*` for several, `%` for a map by text. What is zero or empty was not given, but for
/// fields with `?`. `-` is what a server does not take from a client.
const SCHEMA: &str = "
Unknown: 1 typeMeta TypeMeta, 2 raw bytes, 3 contentEncoding text, 4 contentType text
TypeMeta: 1 apiVersion text, 2 kind text
ObjectMeta: 1 name text, 2 generateName text, 3 namespace text, 4 selfLink -, 5 uid text, 6 resourceVersion text, \
    7 generation int, 8 creationTimestamp time, 9 deletionTimestamp time, 10 deletionGracePeriodSeconds int, \
    11 labels %text, 12 annotations %text, 13 ownerReferences *OwnerReference, 14 finalizers *text, 17 managedFields -
OwnerReference: 1 kind text, 3 name text, 4 uid text, 5 apiVersion text, 6 controller bool?, 7 blockOwnerDeletion bool?
DeleteOptions: 1 gracePeriodSeconds int?, 2 preconditions Preconditions, 3 orphanDependents bool?, \
    4 propagationPolicy text, 5 dryRun *text
Preconditions: 1 uid text, 2 resourceVersion text
LabelSelector: 1 matchLabels %text, 2 matchExpressions *LabelSelectorRequirement
LabelSelectorRequirement: 1 key text, 2 operator text, 3 values *text
Eviction: 1 metadata ObjectMeta, 2 deleteOptions DeleteOptions
PodDisruptionBudget: 1 metadata ObjectMeta, 2 spec PodDisruptionBudgetSpec, 3 status -
PodDisruptionBudgetSpec: 1 minAvailable either, 2 selector LabelSelector, 3 maxUnavailable either, \
    4 unhealthyPodEvictionPolicy text
TokenRequest: 1 metadata ObjectMeta, 2 spec TokenRequestSpec, 3 status -
TokenRequestSpec: 1 audiences *text, 3 boundObjectRef BoundObjectReference, 4 expirationSeconds int?
BoundObjectReference: 1 kind text, 2 apiVersion text, 3 name text, 4 uid text
SelfSubjectReview: 1 metadata ObjectMeta, 2 status -
Namespace: 1 metadata ObjectMeta, 2 spec NamespaceSpec, 3 status -
NamespaceSpec: 1 finalizers *text
ConfigMap: 1 metadata ObjectMeta, 2 data %text, 3 binaryData %bytes, 4 immutable bool?
Secret: 1 metadata ObjectMeta, 2 data %bytes, 3 type text, 4 stringData %text, 5 immutable bool?
ServiceAccount: 1 metadata ObjectMeta, 2 secrets *ObjectReference, 3 imagePullSecrets *LocalObjectReference, \
    4 automountServiceAccountToken bool?
ObjectReference: 1 kind text, 2 namespace text, 3 name text, 4 uid text, 5 apiVersion text, 6 resourceVersion text, \
    7 fieldPath text
LocalObjectReference: 1 name text
Service: 1 metadata ObjectMeta, 2 spec ServiceSpec, 3 status -
ServiceSpec: 1 ports *ServicePort, 2 selector %text, 3 clusterIP text, 4 type text, 5 externalIPs *text, \
    7 sessionAffinity text, 10 externalName text, 11 externalTrafficPolicy text, 13 publishNotReadyAddresses bool, \
    17 ipFamilyPolicy text, 18 clusterIPs *text, 19 ipFamilies *text, 22 internalTrafficPolicy text
ServicePort: 1 name text, 2 protocol text, 3 port int, 4 targetPort either, 5 nodePort int, 6 appProtocol text
Deployment: 1 metadata ObjectMeta, 2 spec DeploymentSpec, 3 status -
DeploymentSpec: 1 replicas int?, 2 selector LabelSelector, 3 template PodTemplateSpec, 4 strategy DeploymentStrategy, \
    5 minReadySeconds int, 6 revisionHistoryLimit int?, 7 paused bool, 9 progressDeadlineSeconds int?
DeploymentStrategy: 1 type text, 2 rollingUpdate RollingUpdate
RollingUpdate: 1 maxUnavailable either, 2 maxSurge either
PodTemplateSpec: 1 metadata ObjectMeta, 2 spec PodSpec
Pod: 1 metadata ObjectMeta, 2 spec PodSpec, 3 status -
PodSpec: 2 containers *Container, 3 restartPolicy text, 4 terminationGracePeriodSeconds int?, 6 dnsPolicy text, \
    7 nodeSelector %text, 8 serviceAccountName text, 9 serviceAccount text, 10 nodeName text, 11 hostNetwork bool, \
    12 hostPID bool, 13 hostIPC bool, 16 hostname text, 17 subdomain text, 19 schedulerName text, \
    20 initContainers *Container, 21 automountServiceAccountToken bool?, 22 tolerations *Toleration, \
    24 priorityClassName text, 30 enableServiceLinks bool?
Toleration: 1 key text, 2 operator text, 3 value text, 4 effect text, 5 tolerationSeconds int?
Container: 1 name text, 2 image text, 3 command *text, 4 args *text, 5 workingDir text, 6 ports *ContainerPort, \
    7 env *EnvVar, 13 terminationMessagePath text, 14 imagePullPolicy text, 16 stdin bool, 17 stdinOnce bool, \
    18 tty bool, 20 terminationMessagePolicy text
ContainerPort: 1 name text, 2 hostPort int, 3 containerPort int, 4 protocol text, 5 hostIP text
EnvVar: 1 name text, 2 value text
Event: 1 metadata ObjectMeta, 2 involvedObject ObjectReference, 3 reason text, 4 message text, 5 source EventSource, \
    6 firstTimestamp time, 7 lastTimestamp time, 8 count int, 9 type text, 10 eventTime time, 12 action text, \
    14 reportingComponent text, 15 reportingInstance text
EventSource: 1 component text, 2 host text
Lease: 1 metadata ObjectMeta, 2 spec LeaseSpec
LeaseSpec: 1 holderIdentity text, 2 leaseDurationSeconds int?, 3 acquireTime micros, 4 renewTime micros, \
    5 leaseTransitions int?
Time: 1 seconds int, 2 nanos int
IntOrString: 1 type int, 2 intVal int, 3 strVal text
";

#[derive(Clone, Copy)]
enum Shape {
    One,
    List,
    Map,
}

#[derive(Clone, Copy)]
struct Field {
    name: &'static str,
    /// A word of [`SCHEMA`].
    of: &'static str,
    shape: Shape,
    /// Zero means something.
    given: bool,
}

type Message = HashMap<u64, Field>;

static MESSAGES: LazyLock<HashMap<&str, Message>> = LazyLock::new(|| {
    let lines = SCHEMA.lines().filter_map(|line| line.split_once(": "));
    lines
        .map(|(name, fields)| {
            (
                name,
                fields
                    .split(", ")
                    .map(|field| self::field(field.trim()))
                    .collect(),
            )
        })
        .collect()
});

fn field(line: &'static str) -> (u64, Field) {
    let mut words = line.split(' ');
    let mut word = || {
        words
            .next()
            .expect("a field has a number, a name and a type")
    };
    let number = word().parse().expect("it begins with a number");
    let (name, of) = (word(), word());
    let shape = match of.as_bytes().first() {
        Some(b'*') => Shape::List,
        Some(b'%') => Shape::Map,
        _ => Shape::One,
    };
    let field = Field {
        name,
        of: of.trim_start_matches(['*', '%']).trim_end_matches('?'),
        shape,
        given: of.ends_with('?'),
    };
    (number, field)
}

/// An object out of its body, with `kind` and `apiVersion`; else why not.
pub(super) fn decode(body: &[u8]) -> Result<Value, String> {
    let envelope = body
        .strip_prefix(MAGIC)
        .ok_or("it does not begin as protobuf of Kubernetes does")?;
    let envelope = message("Unknown", envelope)?;
    let kind = envelope["typeMeta"]["kind"].as_str().unwrap_or_default();
    let raw = envelope["raw"]
        .as_str()
        .map_or(Ok(Vec::new()), |raw| STANDARD.decode(raw));
    let raw = raw.map_err(|error| error.to_string())?;
    if !MESSAGES.contains_key(kind) {
        return Err(format!("a {kind} is taken as JSON only"));
    }
    let mut object = message(kind, &raw)?;
    object["kind"] = kind.into();
    object["apiVersion"] = envelope["typeMeta"]["apiVersion"].clone();
    Ok(object)
}

/// A field as it is on the wire.
enum Wire<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

impl Wire<'_> {
    /// What Go writes of a field that nobody set.
    fn is_nothing(&self) -> bool {
        matches!(self, Self::Number(0) | Self::Bytes(b""))
    }
}

fn message(name: &str, mut bytes: &[u8]) -> Result<Value, String> {
    let fields = MESSAGES
        .get(name)
        .ok_or_else(|| format!("no message {name}"))?;
    let mut object = Map::new();
    while !bytes.is_empty() {
        let (number, wire) = next(&mut bytes)?;
        let Some(field) = fields.get(&number) else {
            if wire.is_nothing() {
                continue;
            }
            return Err(format!("field {number} of a {name} is taken as JSON only"));
        };
        add(&mut object, field, &wire)?;
    }
    Ok(object.into())
}

fn add(object: &mut Map<String, Value>, field: &Field, wire: &Wire<'_>) -> Result<(), String> {
    if field.of == "-" {
        return Ok(());
    }
    match field.shape {
        Shape::One => {
            let value = value(field.of, wire)?;
            let nothing = wire.is_nothing() || value.is_null();
            if !nothing || field.given {
                object.insert(field.name.to_owned(), value);
            }
        }
        Shape::List => {
            let list = object.entry(field.name).or_insert_with(|| json!([]));
            list.as_array_mut()
                .expect("it was made as one")
                .push(value(field.of, wire)?);
        }
        Shape::Map => {
            let &Wire::Bytes(mut entry) = wire else {
                return Err(format!("{} is no map", field.name));
            };
            let map = object.entry(field.name).or_insert_with(|| json!({}));
            let (mut key, mut found) = (Value::default(), json!(""));
            while !entry.is_empty() {
                match next(&mut entry)? {
                    (1, wire) => key = value("text", &wire)?,
                    (_, wire) => found = value(field.of, &wire)?,
                }
            }
            map[key.as_str().unwrap_or_default()] = found;
        }
    }
    Ok(())
}

fn value(of: &str, wire: &Wire<'_>) -> Result<Value, String> {
    match (of, wire) {
        ("int", Wire::Number(number)) => Ok(number.cast_signed().into()),
        ("bool", Wire::Number(number)) => Ok((*number != 0).into()),
        ("text", Wire::Bytes(bytes)) => {
            let text = std::str::from_utf8(bytes).map_err(|error| error.to_string())?;
            Ok(text.into())
        }
        ("bytes", Wire::Bytes(bytes)) => Ok(STANDARD.encode(bytes).into()),
        ("time" | "micros", Wire::Bytes(bytes)) => {
            let time = message("Time", bytes)?;
            let part = |name: &str| time[name].as_i64().unwrap_or_default();
            let nanos = i32::try_from(part("nanos")).unwrap_or_default();
            let Ok(time) = Timestamp::new(part("seconds"), nanos) else {
                return Ok(Value::Null);
            };
            let text = if of == "time" {
                written(time)
            } else {
                time.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
            };
            Ok(text.into())
        }
        ("either", Wire::Bytes(bytes)) => {
            let either = message("IntOrString", bytes)?;
            let text = either["type"] == 1;
            Ok(if text {
                either["strVal"].clone()
            } else {
                either["intVal"].as_i64().unwrap_or_default().into()
            })
        }
        (name, Wire::Bytes(bytes)) => message(name, bytes),
        (name, Wire::Number(_)) => Err(format!("a number is no {name}")),
    }
}

/// The next field of a message, with its number.
fn next<'a>(bytes: &mut &'a [u8]) -> Result<(u64, Wire<'a>), String> {
    let tag = varint(bytes)?;
    let wire = match tag & 7 {
        0 => Wire::Number(varint(bytes)?),
        2 => {
            let length = usize::try_from(varint(bytes)?).unwrap_or(usize::MAX);
            let (field, rest) = bytes
                .split_at_checked(length)
                .ok_or("a field ends beyond its message")?;
            *bytes = rest;
            Wire::Bytes(field)
        }
        other => return Err(format!("wire type {other} is not used by Kubernetes")),
    };
    Ok((tag >> 3, wire))
}

fn varint(bytes: &mut &[u8]) -> Result<u64, String> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first().ok_or("a number breaks off")?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err("a number is too long".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(number: u8, content: &[u8]) -> Vec<u8> {
        let length = u8::try_from(content.len()).unwrap();
        [&[number << 3 | 2, length], content].concat()
    }

    fn body(kind: &str, raw: &[u8]) -> Vec<u8> {
        let meta = [bytes(1, b"v1"), bytes(2, kind.as_bytes())].concat();
        [MAGIC, &bytes(1, &meta), &bytes(2, raw)].concat()
    }

    #[test]
    fn an_object_is_what_its_json_would_be_without_what_nobody_set() {
        let metadata = [
            bytes(1, b"a"),
            bytes(2, b""),
            bytes(11, &[bytes(1, b"k"), bytes(2, b"v")].concat()),
        ]
        .concat();
        let raw = [
            bytes(1, &metadata),
            bytes(2, &[bytes(1, b"d"), bytes(2, b"1")].concat()),
            vec![4 << 3, 0],
        ]
        .concat();
        assert_eq!(
            decode(&body("ConfigMap", &raw)).unwrap(),
            json!({
                "kind": "ConfigMap", "apiVersion": "v1", "metadata": { "name": "a", "labels": { "k": "v" } },
                "data": { "d": "1" }, "immutable": false,
            })
        );
    }

    #[test]
    fn what_is_not_understood_is_refused_by_name_and_no_byte_makes_it_panic() {
        let unknown = decode(&body("ConfigMap", &bytes(9, b"x"))).unwrap_err();
        assert_eq!(unknown, "field 9 of a ConfigMap is taken as JSON only");
        assert!(decode(&body("Node", b"")).unwrap_err().contains("Node"));
        let whole = body("ConfigMap", &bytes(1, &bytes(1, b"a")));
        for end in 0..whole.len() {
            let _ = decode(&whole[..end]);
            let mut broken = whole.clone();
            broken[end] ^= 0xff;
            let _ = decode(&broken);
        }
    }

    #[test]
    fn every_type_of_the_schema_is_one() {
        const PLAIN: [&str; 8] = [
            "text", "bytes", "int", "bool", "time", "micros", "either", "-",
        ];
        for (name, fields) in &*MESSAGES {
            for field in fields.values() {
                assert!(
                    PLAIN.contains(&field.of) || MESSAGES.contains_key(field.of),
                    "{name}.{}: {}",
                    field.name,
                    field.of
                );
            }
        }
    }
}
