// CUDA in JupyterLab: .cu and .cuh files, and cells that begin with %%cu, have the colours of C++.
// Listings of source and errors break between words, where JupyterLab would break them anywhere.
//
// A prebuilt extension as JupyterLab loads it, written by hand, so that nothing has to be built: a
// container that is given the modules JupyterLab shares, and gives its plugin.

const MIME = "text/x-cuda";
const LISTINGS =
  ".jp-RenderedMarkdown pre, .jp-RenderedMarkdown pre code, .jp-RenderedText pre { word-break: normal !important; }";
const CELL = /^\s*%%cu(?:da)?\b/;

async function shared(scope, name) {
  const [version] = Object.values(scope[name]);
  return (await version.get())();
}

function addStyle(text) {
  const style = document.createElement("style");
  style.textContent = text;
  document.head.append(style);
}

function addLanguage(languages) {
  languages.addLanguage({
    name: "CUDA",
    mime: MIME,
    extensions: ["cu", "cuh"],
    load: async () => (await languages.getLanguage("text/x-c++src")).support,
  });
}

// The notebook gives every code cell the kernel's language: at the start, and when kernels change.
function followCell(model) {
  const update = () => {
    if (model.type !== "code") return;
    const isCuda = CELL.test(model.sharedModel.getSource());
    if (isCuda && model.mimeType !== MIME) {
      model.playgroundMime = model.mimeType;
      model.mimeType = MIME;
    } else if (!isCuda && model.mimeType === MIME) {
      model.mimeType = model.playgroundMime;
    }
  };
  update();
  model.contentChanged.connect(update);
  model.mimeTypeChanged.connect(update);
}

function followNotebook(panel) {
  const { cells } = panel.content.model;
  [...cells].forEach(followCell);
  cells.changed.connect((_, change) => {
    if (change.type === "add" || change.type === "set") change.newValues.forEach(followCell);
  });
}

window._JUPYTERLAB = window._JUPYTERLAB || {};
window._JUPYTERLAB["kernel-playground"] = {
  init(scope) {
    this.scope = scope;
  },
  async get() {
    const { IEditorLanguageRegistry } = await shared(this.scope, "@jupyterlab/codemirror");
    const { INotebookTracker } = await shared(this.scope, "@jupyterlab/notebook");
    const plugin = {
      id: "kernel-playground:cuda",
      description: "The language CUDA, in files and in cells.",
      autoStart: true,
      requires: [IEditorLanguageRegistry, INotebookTracker],
      activate: (app, languages, notebooks) => {
        addLanguage(languages);
        addStyle(LISTINGS);
        notebooks.widgetAdded.connect((_, panel) => panel.context.ready.then(() => followNotebook(panel)));
      },
    };
    return () => ({ __esModule: true, default: plugin });
  },
};
