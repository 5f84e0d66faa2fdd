"""Writes pages that use different parts of a browser into a folder. Usage: pages.py FOLDER"""

import pathlib
import sys

WORDS = "The functions that a program runs first lie scattered over its text. " * 12

PAGES = {
    "text": f"<h1>Title</h1><p>{WORDS}</p><p><i>{WORDS}</i></p>",
    "columns": f"<style>body {{ columns: 3; hyphens: auto }}</style><p lang=en>{WORDS * 2}</p>",
    "grid": "<style>main { display: grid; grid-template-columns: repeat(4, 1fr); gap: 9px } p { background: teal }</style><main>"
    + "".join(f"<p>{number}</p>" for number in range(16))
    + "</main>",
    "flex": "<style>main { display: flex; flex-wrap: wrap } p { flex: 1 1 90px; border: 2px dashed }</style><main>"
    + "".join(f"<p>{'x' * number}</p>" for number in range(12))
    + "</main>",
    "table": "<table border=1>" + "".join(f"<tr><td>{row}<td colspan=2>{row * row}<td>{row:b}" for row in range(12)) + "</table>",
    "forms": "<form><input value=a><input type=checkbox checked><input type=range><select><option>b</select><textarea>c</textarea>"
    "<button>d</button><progress value=1 max=3></progress><meter value=0.4></meter></form>",
    "lists": "<ol type=i><li>a<li>b<ul><li>c<li>d</ul><li>e</ol><dl><dt>f<dd>g</dl>",
    "gradients": "<style>div { height: 90px; background: conic-gradient(red, yellow, lime, aqua, blue, magenta, red); border-radius: 40px;"
    " box-shadow: 9px 9px 9px gray }</style><div></div><div style='background: radial-gradient(red, blue)'></div>",
    "transforms": "<style>div { width: 90px; height: 90px; background: coral; transform: rotate(30deg) skew(9deg); margin: 40px;"
    " filter: blur(2px) hue-rotate(90deg) }</style><div></div>",
    "shapes": "<svg width=400 height=300><circle cx=90 cy=90 r=70 fill=orange /><path d='M9 9 C 90 200 200 9 390 290' stroke=navy fill=none"
    " stroke-width=5 /><text x=40 y=200 font-size=40 textLength=300>shapes</text></svg>",
    "masks": "<svg width=400 height=300><defs><mask id=m><rect width=400 height=300 fill=white /><circle cx=200 cy=150 r=90 /></mask>"
    "<pattern id=p width=20 height=20 patternUnits=userSpaceOnUse><path d='M0 0 L20 20' stroke=red /></pattern></defs>"
    "<rect width=400 height=300 fill='url(#p)' mask='url(#m)' /></svg>",
    "canvas": "<canvas id=c width=400 height=300></canvas><script>const d = c.getContext('2d'); for (let i = 0; i < 40; i++) {"
    " d.fillStyle = `hsl(${i * 9}, 80%, 50%)`; d.beginPath(); d.arc(20 + i * 9, 150 + 90 * Math.sin(i / 4), 20, 0, 7); d.fill() }</script>",
    "pixels": "<canvas id=c width=256 height=256></canvas><script>const d = c.getContext('2d'), p = d.createImageData(256, 256);"
    " for (let i = 0; i < p.data.length; i++) p.data[i] = i % 4 == 3 ? 255 : (i * 2654435761 >>> 24); d.putImageData(p, 0, 0)</script>",
    "script": "<pre id=o></pre><script>const m = new Map(); for (let i = 0; i < 999; i++) m.set(i % 7, (m.get(i % 7) ?? 0) + i);"
    " o.textContent = JSON.stringify([...m]) + '12-ab'.replace(/(\\d+)-(\\w+)/, '$2')</script>",
    "promises": "<pre id=o></pre><script>(async () => { for (const n of [1, 2, 3]) { o.textContent += await Promise.resolve(n) } })()</script>",
    "elements": "<x-a>b</x-a><script>customElements.define('x-a', class extends HTMLElement { connectedCallback() {"
    " this.attachShadow({mode: 'open'}).innerHTML = '<style>b { color: green }</style><b><slot></slot></b>' } })</script>",
    "webassembly": "<pre id=o></pre><script>const b = new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0, 1, 7, 1, 96, 2, 127, 127, 1, 127, 3, 2, 1,"
    " 0, 7, 5, 1, 1, 97, 0, 0, 10, 9, 1, 7, 0, 32, 0, 32, 1, 106, 11]);"
    " o.textContent = new WebAssembly.Instance(new WebAssembly.Module(b)).exports.a(40, 2)</script>",
    "exceptions": "<pre id=o></pre><script>const deep = (n) => n ? deep(n - 1) : null.x; const tried = (f) => { try { return f() } catch (e)"
    " { return e.name + e.stack.split('\\n').length } finally { o.textContent += '.' } }; o.textContent += [() => deep(3), () => { throw new"
    " TypeError('t') }, () => (function f() { f() })(), () => JSON.parse('{'), () => [1].map(() => undefined.y)].map(tried);"
    " Promise.reject(new Error('r')).catch((e) => { o.textContent += e.message })</script>",
    "garbage": "<pre id=o></pre><script>let kept = []; const grow = (n) => n ? [grow(n - 1), {n, s: 'x'.repeat(n)}] : []; for (let i = 0; i < 30000;"
    " i++) { const made = grow(20); if (i % 999 == 0) kept.push(made) } o.textContent = kept.length + JSON.stringify(kept).length</script>",
    "generators": "<pre id=o></pre><script>function* count(n) { try { for (let i = 0; i < n; i++) yield i } finally { o.textContent += 'end' } }"
    " for (const n of count(9)) { if (n > 5) break; o.textContent += n } (async () => { try { await (async () => { throw 1 })() } catch (e) {"
    " o.textContent += e } })()</script>",
    "scripts": "<p>abc αβγ абв</p><p dir=rtl>ابجد אבגד</p><p>漢字かな 한글 ไทย</p>",
    "images": "<img width=90 src='data:image/svg+xml,<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 9 9\"><rect width=\"9\" height=\"5\""
    "/></svg>'><img src='data:image/gif;base64,R0lGODlhAQABAIAAAAUEBAAAACwAAAAAAQABAAACAkQBADs=' width=40 height=40>",
    "documents": "<pre id=o></pre><script>const d = new DOMParser().parseFromString('<a><b c=\"1\"/><b/></a>', 'text/xml');"
    " o.textContent = new XMLSerializer().serializeToString(d) + d.evaluate('count(//b)', d, null, 1, null).numberValue</script>",
}


def main():
    """Writes each page."""
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, body in PAGES.items():
        (folder / f"{name}.html").write_text(f"<!doctype html><meta charset=utf-8><title>{name}</title>{body}\n")


if __name__ == "__main__":
    main()
