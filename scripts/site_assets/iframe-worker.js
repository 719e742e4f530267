// The search of the site runs in a worker, which browsers refuse to a page that was opened as a file: an iframe takes its place.
if (location.protocol === "file:")
  self.Worker = class {
    constructor(url) {
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.frame.srcdoc = `<script src="${url}"></script>`;
      this.started = new Promise((resolve) => {
        this.frame.onload = () => {
          const inside = this.frame.contentWindow;
          inside.postMessage = (data) => this.onmessage?.({ data: structuredClone(data) });
          resolve(inside);
        };
      });
      document.body.append(this.frame);
    }
    postMessage(data) {
      const event = { data: structuredClone(data) };
      this.started.then((inside) => inside.onmessage(event));
    }
    terminate() {
      this.frame.remove();
    }
  };
