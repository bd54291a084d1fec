// Command lines of the program, as they are typed into a shell.

export interface Access { host: string; port: number; user: string; hasPassword: boolean; certificate: string }
export interface Selection { /** `db` or `db.table`; nothing for everything. */ parts: string[]; file: string }

/** A word of a command line: in quotes if a shell would read it as something else. */
export function quoted(word: string): string {
  return /^[\w./:@%+=,-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}

function access({ host, port, user, hasPassword, certificate }: Access): string[] {
  return ['-c', `${host}:${port}`, ...(user === 'admin' ? [] : ['-u', user]), ...(hasPassword ? ['-p'] : []), ...(certificate ? ['--tls-cert', certificate] : [])];
}

const line = (words: string[]) => words.map(quoted).join(' ');

export function dump(at: Access, { parts, file }: Selection): string {
  return line(['rekindle', 'dump', ...access(at), ...parts.flatMap((part) => ['-e', part]), '-f', file]);
}

/** `isForced`: also into tables that are there. */
export function restore(at: Access, { parts, file }: Selection, isForced: boolean): string {
  return line(['rekindle', 'restore', file, ...access(at), ...parts.flatMap((part) => ['-i', part]), ...(isForced ? ['--force'] : [])]);
}
