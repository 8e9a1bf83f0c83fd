"""The repository's own pages (CONTRIBUTING.md and others) as pages of the site, which MkDocs looks
for in docs/ alone."""
import re

from mkdocs.structure.files import File

PAGES = ("CONTRIBUTING.md", "SECURITY.md", "THIRD_PARTY.md", "CHANGELOG.md")


def on_files(files, config):
    for page in PAGES:
        files.append(File(page, ".", config["site_dir"], config["use_directory_urls"]))
    return files


def on_page_markdown(markdown, page, **_):
    path = page.file.src_uri
    if path in PAGES:
        return markdown.replace("](docs/", "](")
    return re.sub(r"\]\((?:\.\./)+(%s)" % "|".join(PAGES), lambda link: "](" + "../" * path.count("/") + link[1],
                  markdown)
