// The same request as code.

import { hasKey } from "./api.js";
import { at } from "./elements.js";

const inShell = (text) => `'${text.replaceAll("'", "'\\''")}'`;
const indented = (body) => JSON.stringify(body, null, 2);

const FORMS = {
  curl: (address, body) =>
    [
      `curl ${inShell(address)}`,
      ...(hasKey() ? ["-H 'Authorization: Bearer KEY'"] : []),
      "-H 'Content-Type: application/json'",
      `-d ${inShell(JSON.stringify(body))}`,
    ].join(" \\\n  "),
  python: (address, body) =>
    [
      "import json",
      "from urllib.request import Request, urlopen",
      "",
      `body = ${indented(body)}`,
      `headers = {"Content-Type": "application/json"${hasKey() ? ', "Authorization": "Bearer KEY"' : ""}}`,
      `request = Request(${JSON.stringify(address)}, json.dumps(body).encode(), headers)`,
      'for translation in json.load(urlopen(request))["translations"]:',
      '    print(translation["text"])',
    ].join("\n"),
  json: (_, body) => indented(body),
};

// bodyOf: returns the body of the request.
export function drawCode(bodyOf) {
  if (!at("#code").open) return;
  const body = bodyOf();
  const form = at("#code [name=form]:checked").value;
  at("#code-text").textContent = FORMS[form](new URL("api/v1/translate", location.href.split("#")[0]).href, body);
}
