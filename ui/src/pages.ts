// The pages beside the overview, in a file of their own.
export { default as Activity } from './pages/Activity.svelte';
export { default as Backups } from './pages/Backups.svelte';
export { default as Explorer } from './pages/Explorer.svelte';
export { default as Issues } from './pages/Issues.svelte';
export { default as Logs } from './pages/Logs.svelte';
export { default as Server } from './pages/Server.svelte';
export { default as Servers } from './pages/Servers.svelte';
export { default as Table } from './pages/Table.svelte';
export { default as Tables } from './pages/Tables.svelte';
export { default as Users } from './pages/Users.svelte';
export { default as Palette } from './parts/Palette.svelte';
