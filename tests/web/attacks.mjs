// What a model may write to get at the reader, and what must be left of it. Used with and without a browser.

export const ATTACKS = [
  "<script>window.t9pwned = 1</script>",
  "<img src=x onerror=\"window.t9pwned = 1\">",
  "<svg onload=window.t9pwned=1>",
  "<svg><animate onbegin=window.t9pwned=1 attributeName=x dur=1s>",
  "<iframe srcdoc=\"<script>parent.t9pwned = 1</script>\"></iframe>",
  "<a href=\"javascript:window.t9pwned=1\">x</a>",
  "[click](javascript:window.t9pwned=1)",
  "[click](JaVaScRiPt:window.t9pwned=1)",
  "[click](java\tscript:window.t9pwned=1)",
  "[click](&#106;avascript:window.t9pwned=1)",
  "[click](data:text/html;base64,PHNjcmlwdD4=)",
  "[click](vbscript:x)",
  "[same](/v1/state)",
  "![x](x\" onerror=\"window.t9pwned=1)",
  "![x](https://tracker.example/pixel.gif)",
  "<img src=https://tracker.example/pixel.gif>",
  "<style>@import url(https://tracker.example/x.css)</style>",
  "<link rel=stylesheet href=https://tracker.example/x.css>",
  "<div style=\"background:url(https://tracker.example/x)\">x</div>",
  "<form action=https://tracker.example><input name=q><button>go</button></form>",
  "<base href=https://tracker.example/>",
  "<meta http-equiv=refresh content=\"0;url=https://tracker.example\">",
  "<math><mtext><table><mglyph><style><!--</style><img title=\"--&gt;&lt;img src=1 onerror=window.t9pwned=1&gt;\">",
  "<noscript><p title=\"</noscript><img src=x onerror=window.t9pwned=1>\">",
  "<object data=https://tracker.example></object><embed src=https://tracker.example>",
  "<template><script>window.t9pwned=1</script></template>",
  "<details open ontoggle=window.t9pwned=1>",
  "<sub onclick=window.t9pwned=1>x</sub>",
  "<kbd onmouseover=window.t9pwned=1 id=prompt name=prompt class=composer>x</kbd>",
  "```html\n<img src=x onerror=window.t9pwned=1>\n```",
  "```javascript\"onload=window.t9pwned=1\nx\n```",
  "`<img src=x onerror=window.t9pwned=1>`",
  "| <img src=x onerror=window.t9pwned=1> | b |\n|---|---|\n| <script>window.t9pwned=1</script> | [x](javascript:1) |",
  "<x-y onfocus=window.t9pwned=1 tabindex=0 autofocus>",
  "\u0000<scr\u0000ipt>window.t9pwned=1</script>",
];

const TAGS = ["DIV", "P", "BR", "HR", "H3", "H4", "H5", "H6", "STRONG", "EM", "DEL", "CODE", "PRE", "UL", "OL", "LI", "BLOCKQUOTE", "TABLE", "THEAD",
  "TBODY", "TR", "TH", "TD", "A", "SPAN", "SUB", "SUP", "KBD", "BUTTON"];
const ATTRIBUTES = ["href", "title", "class", "align", "start", "target", "rel", "type", "tabindex", "role", "aria-label"];

// The source of a function of an element that tells what is in it that must not be there, "" when nothing is. A source,
// so that it can run inside a page.
export const LOOK = `(root) => {
  for (const el of root.querySelectorAll("*")) {
    if (!${JSON.stringify(TAGS)}.includes(el.tagName)) return "<" + el.tagName + ">";
    for (const { name, value } of el.attributes) {
      if (!${JSON.stringify(ATTRIBUTES)}.includes(name)) return el.tagName + " " + name;
      if (name === "href" && !/^(?:https?|mailto):/.test(value)) return "href " + value;
      if (name === "class" && !/^(?:block|code|code-head|table|hljs-[\\w -]+|language-[\\w+#-]*)$/.test(value)) return "class " + value;
    }
  }
  return "";
}`;

export const allowedOnly = new Function(`return ${LOOK}`)();
