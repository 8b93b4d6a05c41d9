import { type ComponentChild, render } from "preact";
import { useEffect } from "preact/hooks";
import { IncidentPage } from "./pages/incident";
import { IncidentsPage } from "./pages/incidents";
import { JobPage, JobsPage } from "./pages/jobs";
import { NodePage, NodesPage } from "./pages/nodes";
import { OverviewPage } from "./pages/overview";
import { Empty } from "./parts/small";
import { applyTheme } from "./preferences";
import { interceptLinks, usePlace } from "./router";
import { Shell } from "./shell";
import { type State, start, useStore } from "./store";
import { sentence } from "./words";
import "./styles/base.css";
import "./styles/shell.css";
import "./styles/parts.css";
import "./styles/incident.css";
import "./styles/job.css";

interface Found {
  readonly title: string;
  readonly page: ComponentChild;
}

function pageAt(path: string, store: State): Found {
  const [kind = "", name = ""] = path.slice(1).split("/").map(decodeURIComponent);
  switch (name ? `${kind}/` : kind) {
    case "":
      return { title: "Overview", page: <OverviewPage store={store} /> };
    case "incidents":
      return { title: "Incidents", page: <IncidentsPage store={store} /> };
    case "incidents/":
      return { title: name, page: <IncidentPage id={name} store={store} /> };
    case "nodes":
      return { title: "Nodes", page: <NodesPage store={store} /> };
    case "nodes/":
      return { title: name, page: <NodePage name={name} store={store} /> };
    case "jobs":
      return { title: "Jobs", page: <JobsPage store={store} /> };
    case "jobs/":
      return { title: name, page: <JobPage name={name} store={store} /> };
    default:
      return { title: "No such page", page: <NoPage path={path} /> };
  }
}

function NoPage({ path }: { path: string }) {
  return (
    <>
      <h1>No such page</h1>
      <Empty>
        There is nothing at {path}. <a href="/">Go to the overview.</a>
      </Empty>
    </>
  );
}

function App() {
  const store = useStore();
  const { path } = usePlace();
  const { title, page } = pageAt(path, store);
  const open = store.summary?.open_incidents ?? 0;
  useEffect(() => {
    document.title = `${open ? `(${open}) ` : ""}${title} · Aegis`;
  }, [title, open]);
  return <Shell store={store}>{store.loaded ? page : <Waiting store={store} />}</Shell>;
}

function Waiting({ store }: { store: State }) {
  if (!store.error) return <p class="loading">Loading…</p>;
  return (
    <Empty>
      {sentence(store.error.message)} {sentence(store.error.hint)}
    </Empty>
  );
}

applyTheme();
interceptLinks();
start();
const root = document.getElementById("app");
if (root) render(<App />, root);
