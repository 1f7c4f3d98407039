// Sphinx's search fetches each page that it found, to show what stands around the words. A browser
// refuses that to a page that was opened from a file; page_texts.js holds the texts for it.
if (location.protocol === "file:") {
    const fetchPage = window.fetch;
    window.fetch = (address, ...rest) => {
        const name = String(address).replace(/^\.\//, "").replace(/\.html$/, "");
        const text = PAGE_TEXTS[name];
        return text ? Promise.resolve(new Response(text)) : fetchPage(address, ...rest);
    };
}
