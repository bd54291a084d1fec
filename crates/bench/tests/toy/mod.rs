//! A toy server of the protocol: only the terms that the benchmarks send, on maps in memory. It allows tests of whole
//! commands without a database.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use client::frame;
use protocol::handshake::{Accounts, Randomness, ServerHandshake, Step};
use protocol::scram::{Decoy, PasswordRecord};
use serde_json::{Map, Value, json};

type Rows = BTreeMap<String, Value>;

/// Databases, tables, and the primary key of each table.
#[derive(Default)]
pub struct Store {
    databases: BTreeMap<String, BTreeMap<String, (String, Rows)>>,
    /// Durability of the tables that have one.
    durability: BTreeMap<(String, String), Value>,
    generated: u64,
    /// The password of all users.
    pub password: String,
    /// The server fails after this many reads of single rows.
    pub reads_left: Option<u64>,
}

/// The id of the server.
const ID: &str = "0-0";

pub type Shared = Arc<Mutex<Store>>;

/// All users have the same password.
struct Everybody(String);

impl Accounts for Everybody {
    fn password(&self, _user: &str) -> Option<PasswordRecord> {
        match self.0.as_str() {
            "" => Some(PasswordRecord::empty([1; 16])),
            password => Some(PasswordRecord::new(password, [7; 16], 16)),
        }
    }
}

/// The value of a term.
enum Out {
    Table(String, String),
    Row(String, String, String),
    Rows(Vec<Value>),
    Value(Value),
}

/// Starts a server for the rest of the test program; returns its port and its store.
pub fn start() -> (u16, Shared) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let store = Shared::default();
    let server = json!({"id": ID, "name": "toy"});
    let servers = ("id".to_owned(), BTreeMap::from([(ID.to_owned(), server)]));
    let tables = BTreeMap::from([("server_status".to_owned(), servers)]);
    store.lock().expect("the store").databases.insert("rethinkdb".to_owned(), tables);
    let shared = Arc::clone(&store);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let store = Arc::clone(&shared);
            if has_gone(&store) {
                continue;
            }
            std::thread::spawn(move || serve(stream, &store));
        }
    });
    (port, store)
}

fn serve(mut stream: TcpStream, store: &Shared) -> Option<()> {
    let mut input = Vec::new();
    let mut chunk = vec![0; 1 << 16];
    let randomness = Randomness { nonce: [3; 18], decoy: Decoy::new([9; 32]) };
    let mut handshake = ServerHandshake::new(randomness);
    let accounts = Everybody(store.lock().expect("the store").password.clone());
    loop {
        let mut out = Vec::new();
        let progress = handshake.advance(&input, &accounts, "0.0.0-toy", &mut out);
        input.drain(..progress.used);
        stream.write_all(&out).ok()?;
        if progress.step != Step::NeedMore {
            break;
        }
        read_more(&mut stream, &mut input, &mut chunk)?;
    }
    loop {
        while let Some(query) = frame::first(&input) {
            let mut out = Vec::new();
            let answer = answer(query.body, store);
            if has_gone(store) {
                return None;
            }
            frame::push(&mut out, query.token, |body| body.extend_from_slice(answer.as_bytes()));
            let used = query.bytes();
            stream.write_all(&out).ok()?;
            input.drain(..used);
        }
        read_more(&mut stream, &mut input, &mut chunk)?;
    }
}

fn has_gone(store: &Shared) -> bool {
    store.lock().expect("the store").reads_left == Some(0)
}

fn read_more(stream: &mut TcpStream, input: &mut Vec<u8>, chunk: &mut [u8]) -> Option<()> {
    let read = stream.read(chunk).ok().filter(|n| *n > 0)?;
    input.extend_from_slice(&chunk[..read]);
    Some(())
}

fn answer(body: &[u8], store: &Shared) -> String {
    let query: Value = serde_json::from_slice(body).expect("JSON");
    if query[0] == 5 {
        return json!({"t": 5, "r": [{"id": ID, "name": "toy", "proxy": false}]}).to_string();
    }
    let mut store = store.lock().expect("the store");
    match store.eval(&query[1]) {
        Ok(Out::Value(value)) => format!(r#"{{"t":1,"r":[{value}]}}"#),
        Ok(Out::Rows(rows)) => format!(r#"{{"t":2,"r":{},"n":[]}}"#, Value::Array(rows)),
        Ok(Out::Table(db, table)) => {
            let rows = store.rows(&db, &table).map(|rows| rows.values().cloned().collect());
            format!(r#"{{"t":2,"r":{},"n":[]}}"#, Value::Array(rows.unwrap_or_default()))
        }
        Ok(Out::Row(db, table, key)) => {
            let row = store.rows(&db, &table).and_then(|rows| rows.get(&key).cloned());
            format!(r#"{{"t":1,"r":[{}]}}"#, row.unwrap_or(Value::Null))
        }
        Err(text) => format!(r#"{{"t":18,"e":4100000,"r":[{}],"b":[]}}"#, json!(text)),
    }
}

impl Store {
    pub fn rows(&mut self, db: &str, table: &str) -> Option<&mut Rows> {
        self.databases.get_mut(db)?.get_mut(table).map(|(_, rows)| rows)
    }

    fn eval(&mut self, term: &Value) -> Result<Out, String> {
        let Some(parts) = term.as_array() else { return Ok(Out::Value(term.clone())) };
        let no_args = Vec::new();
        let args = parts.get(1).and_then(Value::as_array).unwrap_or(&no_args);
        let options = parts.get(2).cloned().unwrap_or(json!({}));
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        match parts[0].as_u64() {
            Some(14) => Ok(Out::Table(text(&args[0]), String::new())),
            Some(15) => {
                let db = self.database(&args[0])?;
                let table = text(&args[1]);
                match self.rows(&db, &table).is_some() {
                    true => Ok(Out::Table(db, table)),
                    false => Err(format!("Table `{db}.{table}` does not exist.")),
                }
            }
            Some(code @ 57..=62) => self.schema(code, args, &options),
            Some(174) => self.config(&args[0]),
            Some(177) => Ok(Out::Value(json!({"ready": 1}))),
            Some(2) => {
                let each = args.iter().map(|arg| Ok(value_of(self.eval(arg)?)));
                Ok(Out::Value(Value::Array(each.collect::<Result<_, String>>()?)))
            }
            Some(98) => serde_json::from_str(&text(&args[0]))
                .map(Out::Value)
                .map_err(|e| format!("Failed to parse: {e}")),
            Some(16) => {
                self.reads_left = self.reads_left.map(|left| left.saturating_sub(1));
                match self.eval(&args[0])? {
                    Out::Table(db, table) => Ok(Out::Row(db, table, text(&args[1]))),
                    _ => Err("get on something else".to_owned()),
                }
            }
            Some(43) if args[0][0] == 144 => self.count_groups(&args[0]),
            Some(43) => Ok(Out::Value(json!(self.sequence(&args[0])?.len()))),
            Some(78) => self.get_all(args),
            Some(39) => self.above(args),
            // Rows are already in order, and indexes have no effect.
            Some(41) => Ok(Out::Rows(self.sequence(&args[0])?)),
            Some(75 | 140) => Ok(Out::Value(json!({"created": 1}))),
            Some(71) => {
                let mut rows = self.sequence(&args[0])?;
                rows.truncate(args[1].as_u64().unwrap_or(0) as usize);
                Ok(Out::Rows(rows))
            }
            Some(182) => self.between(&args[0], &text(&args[1])),
            Some(56) => self.insert(args, &options),
            Some(53) => self.update(args),
            Some(38) => self.map_field(args),
            Some(145) => self.sum_of_splits(&args[0]),
            other => Err(format!("the toy does not know term {other:?}")),
        }
    }

    /// Creates, lists and drops databases and tables.
    fn schema(&mut self, code: u64, args: &[Value], options: &Value) -> Result<Out, String> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        match code {
            59 => Ok(Out::Value(json!(self.databases.keys().collect::<Vec<_>>()))),
            57 => {
                self.databases.insert(text(&args[0]), BTreeMap::new());
                Ok(Out::Value(json!({"dbs_created": 1})))
            }
            62 => {
                let db = self.database(&args[0])?;
                let tables: Option<Vec<&String>> = self.databases.get(&db).map(|t| t.keys().collect());
                Ok(Out::Value(json!(tables.unwrap_or_default())))
            }
            60 => {
                let db = self.database(&args[0])?;
                let key = options["primary_key"].as_str().unwrap_or("id").to_owned();
                let tables = self.databases.get_mut(&db).ok_or("no such database")?;
                tables.insert(text(&args[1]), (key, Rows::new()));
                let durability = options.get("durability").cloned().unwrap_or(json!("hard"));
                self.durability.insert((db, text(&args[1])), durability);
                Ok(Out::Value(json!({"tables_created": 1})))
            }
            61 => {
                let db = self.database(&args[0])?;
                let tables = self.databases.get_mut(&db).ok_or("no such database")?;
                tables.remove(&text(&args[1]));
                Ok(Out::Value(json!({"tables_dropped": 1})))
            }
            other => Err(format!("the toy does not know term {other}")),
        }
    }

    fn config(&mut self, table: &Value) -> Result<Out, String> {
        match self.eval(table)? {
            Out::Table(db, table) => Ok(Out::Value(json!({"durability": self.durability.get(&(db, table))}))),
            _ => Err("the configuration of something else".to_owned()),
        }
    }

    fn database(&mut self, term: &Value) -> Result<String, String> {
        match self.eval(term)? {
            Out::Table(db, _) => Ok(db),
            _ => Err("not a database".to_owned()),
        }
    }

    fn sequence(&mut self, term: &Value) -> Result<Vec<Value>, String> {
        match self.eval(term)? {
            Out::Table(db, table) => {
                Ok(self.rows(&db, &table).map(|r| r.values().cloned().collect()).unwrap_or_default())
            }
            Out::Rows(rows) | Out::Value(Value::Array(rows)) => Ok(rows),
            _ => Err("not a sequence".to_owned()),
        }
    }

    fn between(&mut self, table: &Value, from: &str) -> Result<Out, String> {
        let Out::Table(db, table) = self.eval(table)? else { return Err("not a table".into()) };
        let rows = self.rows(&db, &table).ok_or("no such table")?;
        Ok(Out::Rows(rows.range(from.to_owned()..).map(|(_, row)| row.clone()).collect()))
    }

    fn get_all(&mut self, args: &[Value]) -> Result<Out, String> {
        let Out::Table(db, table) = self.eval(&args[0])? else { return Err("not a table".into()) };
        let rows = self.rows(&db, &table).ok_or("no such table")?;
        let found = args[1..].iter().filter_map(|key| rows.get(key.as_str()?).cloned());
        Ok(Out::Rows(found.collect()))
    }

    /// `sequence.filter(row => row(field).gt(number))`.
    fn above(&mut self, args: &[Value]) -> Result<Out, String> {
        let (field, least) = (args[1][1][1][1][0][1][1].as_str(), args[1][1][1][1][1].as_u64());
        let (Some(field), Some(least)) = (field, least) else {
            return Err(format!("the toy knows one filter only, not {}", args[1]));
        };
        let mut rows = self.sequence(&args[0])?;
        rows.retain(|row| row[field].as_u64().is_some_and(|number| number > least));
        Ok(Out::Rows(rows))
    }

    /// `sequence.group(field).count()`.
    fn count_groups(&mut self, group: &Value) -> Result<Out, String> {
        let field = group[1][1].as_str().ok_or("the toy groups by a field only")?;
        let mut groups: BTreeMap<String, u64> = BTreeMap::new();
        for row in self.sequence(&group[1][0])? {
            *groups.entry(row[field].as_str().unwrap_or_default().to_owned()).or_default() += 1;
        }
        let data: Vec<Value> = groups.into_iter().map(|(name, count)| json!([name, count])).collect();
        Ok(Out::Value(json!({"$reql_type$": "GROUPED_DATA", "data": data})))
    }

    fn insert(&mut self, args: &[Value], options: &Value) -> Result<Out, String> {
        let Out::Table(db, table) = self.eval(&args[0])? else { return Err("not a table".into()) };
        let documents = match value_of(self.eval(&args[1])?) {
            Value::Array(documents) => documents,
            document => vec![document],
        };
        let (mut inserted, mut errors, mut first_error) = (0, 0, None);
        for mut document in documents {
            self.generated += 1;
            let generated = format!("generated-{}", self.generated);
            let tables = self.databases.get_mut(&db).ok_or("no such database")?;
            let (key_name, rows) = tables.get_mut(&table).ok_or("no such table")?;
            if document[key_name.as_str()].is_null() {
                document[key_name.as_str()] = json!(generated);
            }
            let key = document[key_name.as_str()].as_str().unwrap_or_default().to_owned();
            if rows.contains_key(&key) && options["conflict"] != "replace" {
                errors += 1;
                first_error.get_or_insert(format!("Duplicate primary key `{key_name}`:"));
            } else {
                inserted += 1;
                rows.insert(key, document);
            }
        }
        Ok(Out::Value(write_result(inserted, 0, 0, errors, first_error)))
    }

    fn update(&mut self, args: &[Value]) -> Result<Out, String> {
        let changes = args[1].clone();
        let (db, table, keys) = match self.eval(&args[0])? {
            Out::Row(db, table, key) => (db, table, vec![key]),
            Out::Table(db, table) => {
                let keys = self.rows(&db, &table).map(|r| r.keys().cloned().collect());
                (db, table, keys.unwrap_or_default())
            }
            _ => return Err("not a selection".to_owned()),
        };
        let rows = self.rows(&db, &table).ok_or("no such table")?;
        let (mut replaced, mut skipped) = (0, 0);
        for key in keys {
            let Some(row) = rows.get_mut(&key) else {
                skipped += 1;
                continue;
            };
            replaced += 1;
            for (name, value) in changes.as_object().cloned().unwrap_or_default() {
                row[name] = value;
            }
        }
        Ok(Out::Value(write_result(0, replaced, skipped, 0, None)))
    }

    /// `table.map(row => row(field))`.
    fn map_field(&mut self, args: &[Value]) -> Result<Out, String> {
        let field = args[1][1][1][1][1].as_str().ok_or("the toy maps to fields only")?;
        let rows = self.sequence(&args[0])?;
        Ok(Out::Rows(rows.iter().map(|row| row[field].clone()).collect()))
    }

    /// `table.map(row => row(field).split(separator).count()).sum()`, the only supported sum.
    fn sum_of_splits(&mut self, map: &Value) -> Result<Out, String> {
        let split = &map[1][1][1][1][1][0];
        let (field, separator) = (&split[1][0][1][1], &split[1][1]);
        let (field, separator) = (field.as_str(), separator.as_str());
        let (Some(field), Some(separator)) = (field, separator) else {
            return Err(format!("the toy knows one sum only, not {map}"));
        };
        let rows = self.sequence(&map[1][0])?;
        let counts = rows.iter().map(|row| row[field].as_str().unwrap_or_default());
        Ok(Out::Value(json!(counts.map(|text| text.split(separator).count()).sum::<usize>())))
    }
}

fn value_of(out: Out) -> Value {
    match out {
        Out::Value(value) => value,
        Out::Rows(rows) => Value::Array(rows),
        _ => Value::Null,
    }
}

fn write_result(
    inserted: u64,
    replaced: u64,
    skipped: u64,
    errors: u64,
    first_error: Option<String>,
) -> Value {
    let mut result = Map::new();
    let counts = [
        ("deleted", 0),
        ("errors", errors),
        ("inserted", inserted),
        ("replaced", replaced),
        ("skipped", skipped),
        ("unchanged", 0),
    ];
    result.extend(counts.map(|(name, count)| (name.to_owned(), json!(count))));
    first_error.inspect(|text| drop(result.insert("first_error".to_owned(), json!(text))));
    Value::Object(result)
}
