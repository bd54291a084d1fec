// The frame of the worker. It has an origin of its own; its only link to the page is the port that the page sends it.

declare const WORKER: string;

let port: MessagePort | null = null;
let worker: Worker | null = null;

function begin(): void {
  const url = URL.createObjectURL(new Blob([WORKER], { type: 'text/javascript' }));
  worker = new Worker(url);
  URL.revokeObjectURL(url);
  worker.onmessage = (event) => port?.postMessage(event.data);
  worker.onerror = (event) => port?.postMessage({ type: 'error', message: event.message, isSyntax: false, statement: 0 });
}

addEventListener('message', (event) => {
  // Only the page that holds the frame, and only once.
  if (event.source !== parent || port) return;
  port = event.ports[0] ?? null;
  if (!port) return;
  port.onmessage = ({ data }) => {
    if (data.type === 'stop') {
      worker?.terminate();
      begin();
    } else worker?.postMessage(data);
  };
  begin();
});
