//! Writes JSON member by member, in the given order, so that the members of several messages can be in one
//! object.

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;

/// Writes the members of one JSON object.
#[derive(Debug)]
pub struct ObjectWriter<'a> {
    out: &'a mut Vec<u8>,
    is_empty: bool,
}

impl ObjectWriter<'_> {
    /// Appends an object. `write` writes its members, each name once.
    pub fn object(out: &mut Vec<u8>, write: impl FnOnce(&mut ObjectWriter<'_>)) {
        out.push(b'{');
        let mut object = ObjectWriter { out, is_empty: true };
        write(&mut object);
        object.out.push(b'}');
    }

    /// Writes a member.
    pub fn member<V: WriteJson + ?Sized>(&mut self, name: &str, value: &V) {
        self.name(name);
        value.put(self.out);
    }

    /// Writes a member; omitted if absent.
    pub fn optional<V: WriteJson>(&mut self, name: &str, value: Option<&V>) {
        if let Some(value) = value {
            self.member(name, value);
        }
    }

    /// Writes a member whose value is scanned JSON text; omitted if empty.
    pub fn json(&mut self, name: &str, value: &[u8]) {
        if !value.is_empty() {
            self.name(name);
            self.out.extend_from_slice(value);
        }
    }

    /// Writes bytes as a string in padded standard base64.
    pub fn base64(&mut self, name: &str, value: &[u8]) {
        self.member(name, &STANDARD.encode(value));
    }

    fn name(&mut self, name: &str) {
        if !self.is_empty {
            self.out.push(b',');
        }
        self.is_empty = false;
        name.put(self.out);
        self.out.push(b':');
    }
}

/// A value that can be written as JSON.
pub trait WriteJson {
    /// Appends the value.
    fn put(&self, out: &mut Vec<u8>);
}

impl WriteJson for str {
    fn put(&self, out: &mut Vec<u8>) {
        serde_json::to_writer(out, self).expect("a Vec takes everything, and a string is always JSON");
    }
}

impl WriteJson for String {
    fn put(&self, out: &mut Vec<u8>) {
        self.as_str().put(out);
    }
}

impl WriteJson for bool {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(if *self { b"true" } else { b"false" });
    }
}

impl WriteJson for u64 {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.to_string().as_bytes());
    }
}

impl<T: WriteJson> WriteJson for [T] {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(b'[');
        for (index, element) in self.iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            element.put(out);
        }
        out.push(b']');
    }
}

/// A message that can be written as a difference.
pub trait Changes {
    /// Writes the members that differ from those of `before`, with their current values.
    fn put_changes(&self, before: &Self, object: &mut ObjectWriter<'_>);
}

/// A payload's field as a member: omitted if absent. Text that isn't optional is always written.
pub(super) trait PutField {
    fn put_field(&self, name: &str, object: &mut ObjectWriter<'_>);

    /// Like [`PutField::put_field`], for a field that changed. By default, a field that is omitted when empty
    /// is omitted here too.
    fn put_changed(&self, name: &str, object: &mut ObjectWriter<'_>) {
        self.put_field(name, object);
    }
}

impl PutField for String {
    fn put_field(&self, name: &str, object: &mut ObjectWriter<'_>) {
        object.member(name, self);
    }
}

impl PutField for u64 {
    fn put_field(&self, name: &str, object: &mut ObjectWriter<'_>) {
        object.member(name, self);
    }
}

impl PutField for Bytes {
    fn put_field(&self, name: &str, object: &mut ObjectWriter<'_>) {
        object.json(name, self);
    }
}

impl<T: WriteJson> PutField for Option<T> {
    fn put_field(&self, name: &str, object: &mut ObjectWriter<'_>) {
        object.optional(name, self.as_ref());
    }
}

impl<T: WriteJson> PutField for Vec<T> {
    fn put_field(&self, name: &str, object: &mut ObjectWriter<'_>) {
        if !self.is_empty() {
            object.member(name, self.as_slice());
        }
    }

    fn put_changed(&self, name: &str, object: &mut ObjectWriter<'_>) {
        object.member(name, self.as_slice());
    }
}
