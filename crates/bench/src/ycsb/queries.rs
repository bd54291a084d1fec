//! The queries of the RethinkDB binding, written as bytes around a key and a value.
//!
//! The fixed parts are rendered once, so that a query costs a few copies. Scans differ from the published binding in
//! one way: it always plucked the list of fields, which is null under `readallfields=true`, so that workload E failed
//! as shipped. Here such a scan returns whole documents.

use super::settings::{DATABASE, PRIMARY_KEY, ScanOrder, Settings};
use crate::rng::Rng;
use crate::ycsb::values::integrity_value;

/// Writes the queries of one run.
#[derive(Clone, Debug)]
pub struct Queries {
    settings: Settings,
    read_start: Vec<u8>,
    write_start: Vec<u8>,
    insert_start: Vec<u8>,
    scan_start: Vec<u8>,
    write_end: Vec<u8>,
    fields: Vec<String>,
}

impl Queries {
    /// Renders the fixed parts. `durability` is added to every write, if given.
    pub fn new(settings: &Settings, durability: Option<&str>) -> Self {
        let table =
            |options: &str| format!(r#"[15,[[14,["{DATABASE}"]],{}]{options}]"#, quoted(&settings.table));
        let read_options = match &settings.readmode {
            Some(mode) => format!(r#",{{"read_mode":"{mode}"}}"#),
            None => String::new(),
        };
        let (read_table, write_table) = (table(&read_options), table(""));
        let write_end = match durability {
            Some(durability) => format!(r#",{{"durability":"{durability}"}}],{{}}]"#),
            None => "],{}]".to_owned(),
        };
        Queries {
            read_start: format!("[16,[{read_table},\"").into_bytes(),
            write_start: format!("[1,[53,[[16,[{write_table},\"").into_bytes(),
            insert_start: format!("[1,[56,[{write_table},").into_bytes(),
            scan_start: format!("[182,[{read_table},\"").into_bytes(),
            write_end: write_end.into_bytes(),
            fields: (0..settings.fieldcount).map(|place| settings.field(place)).collect(),
            settings: settings.clone(),
        }
    }

    /// `table.get(key)`, of one field if `field` is given.
    pub fn read(&self, record: u64, field: Option<usize>, out: &mut Vec<u8>) {
        out.extend_from_slice(if field.is_some() { b"[1,[33,[" } else { b"[1," });
        out.extend_from_slice(&self.read_start);
        self.settings.keys.push(record, out);
        out.extend_from_slice(b"\"]]");
        if let Some(field) = field {
            out.extend_from_slice(format!(r#","{}"]]"#, self.fields[field]).as_bytes());
        }
        out.extend_from_slice(b",{}]");
    }

    /// `table.get(key).update(values)`, with one field or all.
    pub fn update(&self, record: u64, field: Option<usize>, rng: &mut Rng, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.write_start);
        self.settings.keys.push(record, out);
        out.extend_from_slice(b"\"]],{");
        match field {
            Some(field) => drop(self.push_field(record, field, rng, out)),
            None => drop(self.push_fields(record, rng, out)),
        }
        out.extend_from_slice(b"}]");
        out.extend_from_slice(&self.write_end);
    }

    /// `table.insert(document)`.
    pub fn insert(&self, record: u64, rng: &mut Rng, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.insert_start);
        self.push_document(record, rng, out);
        out.push(b']');
        out.extend_from_slice(&self.write_end);
    }

    /// `table.insert([documents])`; returns the total number of sentences in the first fields. Every document is
    /// determined by `seed` and its number.
    pub fn insert_many(&self, records: std::ops::Range<u64>, seed: u64, out: &mut Vec<u8>) -> u64 {
        out.extend_from_slice(&self.insert_start);
        out.extend_from_slice(b"[2,[");
        let first = records.start;
        let mut sentences = 0;
        for record in records {
            if record > first {
                out.push(b',');
            }
            sentences += self.push_document(record, &mut Rng::new(seed, record), out);
        }
        out.extend_from_slice(b"]]]");
        out.extend_from_slice(&self.write_end);
        sentences
    }

    /// `table.between(key, maxval).limit(length)`, of one field if `field` is given.
    pub fn scan(&self, record: u64, length: u64, field: Option<usize>, out: &mut Vec<u8>) {
        out.extend_from_slice(if field.is_some() { b"[1,[33,[[71,[" } else { b"[1,[71,[" });
        let by_key = self.settings.scan_order == ScanOrder::ByKey;
        if by_key {
            out.extend_from_slice(b"[41,[");
        }
        out.extend_from_slice(&self.scan_start);
        self.settings.keys.push(record, out);
        out.extend_from_slice(b"\",[181]]]");
        if by_key {
            out.extend_from_slice(format!(r#"],{{"index":"{PRIMARY_KEY}"}}]"#).as_bytes());
        }
        out.extend_from_slice(format!(",{length}]]").as_bytes());
        if let Some(field) = field {
            out.extend_from_slice(format!(r#","{}"]]"#, self.fields[field]).as_bytes());
        }
        out.extend_from_slice(b",{}]");
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The names of the fields.
    pub fn fields(&self) -> &[String] {
        &self.fields
    }

    fn push_document(&self, record: u64, rng: &mut Rng, out: &mut Vec<u8>) -> u64 {
        out.push(b'{');
        let sentences = self.push_fields(record, rng, out);
        out.extend_from_slice(format!(r#","{PRIMARY_KEY}":""#).as_bytes());
        self.settings.keys.push(record, out);
        out.extend_from_slice(b"\"}");
        sentences
    }

    /// Writes all fields; returns the number of sentences in the first.
    fn push_fields(&self, record: u64, rng: &mut Rng, out: &mut Vec<u8>) -> u64 {
        let sentences = self.push_field(record, 0, rng, out);
        for place in 1..self.fields.len() {
            out.push(b',');
            self.push_field(record, place, rng, out);
        }
        sentences
    }

    fn push_field(&self, record: u64, place: usize, rng: &mut Rng, out: &mut Vec<u8>) -> u64 {
        let name = &self.fields[place];
        out.push(b'"');
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b"\":\"");
        let length = self.settings.field_lengths.draw(rng) as usize;
        let stops = if self.settings.dataintegrity {
            let value = integrity_value(&self.settings.keys.key(record), name, length);
            out.extend_from_slice(value.as_bytes());
            value.bytes().filter(|b| *b == b'.').count() as u64
        } else {
            self.settings.alphabet.push(rng, length, out)
        };
        out.push(b'"');
        stops + 1
    }
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::ycsb::properties::Properties;

    fn queries(changes: &[(&str, &str)], durability: Option<&str>) -> Queries {
        let mut properties = Properties::default();
        properties.set("insertorder", "ordered");
        properties.set("fieldcount", "2");
        properties.set("dataintegrity", "true");
        properties.set("fieldlength", "5");
        changes.iter().for_each(|(name, value)| properties.set(name, value));
        Queries::new(&Settings::from_properties(&properties).expect("settings"), durability)
    }

    #[track_caller]
    fn check(write: impl FnOnce(&mut Vec<u8>), expected: Value) {
        let mut bytes = Vec::new();
        write(&mut bytes);
        let query: Value = serde_json::from_slice(&bytes).expect("JSON");
        assert_eq!(query, json!([1, expected, {}]));
    }

    fn table() -> Value {
        json!([15, [[14, ["ycsb"]], "usertable"]])
    }

    #[test]
    fn reads_are_gets_in_the_read_mode_asked_for() {
        let plain = queries(&[], None);
        check(|out| plain.read(7, None, out), json!([16, [table(), "user7"]]));
        check(|out| plain.read(7, Some(1), out), json!([33, [[16, [table(), "user7"]], "field1"]]));
        let outdated = queries(&[("rethinkdb.readmode", "outdated")], None);
        let outdated_table = json!([15, [[14, ["ycsb"]], "usertable"], {"read_mode": "outdated"}]);
        check(|out| outdated.read(7, None, out), json!([16, [outdated_table, "user7"]]));
    }

    #[test]
    fn updates_write_one_field_or_all_with_the_durability_asked_for() {
        let soft = queries(&[("rethinkdb.readmode", "outdated")], Some("soft"));
        let mut rng = Rng::new(1, 0);
        check(
            |out| soft.update(7, Some(1), &mut rng, out),
            json!([53, [[16, [table(), "user7"]], {"field1": "user7"}], {"durability": "soft"}]),
        );
        let plain = queries(&[], None);
        check(
            |out| plain.update(7, None, &mut rng, out),
            json!([53, [[16, [table(), "user7"]], {"field0": "user7", "field1": "user7"}]]),
        );
    }

    #[test]
    fn inserts_carry_their_documents() {
        let plain = queries(&[], Some("hard"));
        let document = |n: u64| {
            let key = format!("user{n}");
            json!({"field0": key, "field1": key, "__pk__": key})
        };
        check(
            |out| plain.insert(7, &mut Rng::new(1, 0), out),
            json!([56, [table(), document(7)], {"durability": "hard"}]),
        );
        check(
            |out| assert_eq!(plain.insert_many(7..9, 1, out), 2),
            json!([56, [table(), [2, [document(7), document(8)]]], {"durability": "hard"}]),
        );
    }

    #[test]
    fn scans_start_at_a_key_and_may_be_ordered() {
        let plain = queries(&[], None);
        let between = json!([182, [table(), "user7", [181]]]);
        check(|out| plain.scan(7, 50, None, out), json!([71, [between, 50]]));
        check(|out| plain.scan(7, 50, Some(0), out), json!([33, [[71, [between, 50]], "field0"]]));
        let ordered = queries(&[("scanorder", "key")], None);
        let in_order = json!([41, [between], {"index": "__pk__"}]);
        check(|out| ordered.scan(7, 50, None, out), json!([71, [in_order, 50]]));
    }

    #[test]
    fn loaded_documents_depend_on_seed_and_number_only() {
        let random = queries(&[("dataintegrity", "false"), ("fieldlength", "300")], None);
        let (mut one, mut two, mut other) = (Vec::new(), Vec::new(), Vec::new());
        let sentences = random.insert_many(3..6, 42, &mut one);
        random.insert_many(3..6, 42, &mut two);
        random.insert_many(3..6, 43, &mut other);
        assert_eq!(one, two);
        assert_ne!(one, other);
        let query: Value = serde_json::from_slice(&one).expect("JSON");
        let documents = query[1][1][1][1].as_array().expect("documents");
        let counted: usize =
            documents.iter().map(|d| d["field0"].as_str().expect("text").split('.').count()).sum();
        assert_eq!(counted as u64, sentences);
    }
}
