/* The copy button of a terminal block copies its commands, without prompts and output. The theme
   takes the text of `data-copy` where there is one. */
for (const code of document.querySelectorAll("pre > code")) {
  const lines = code.textContent.split("\n");
  if (!lines[0].startsWith("$ ")) continue;
  const commands = [];
  let continues = false;
  for (const line of lines) {
    if (!continues && !line.startsWith("$ ")) continue;
    commands.push(continues ? line.replace(/^> /, "") : line.slice(2));
    continues = line.endsWith("\\");
  }
  code.parentElement.setAttribute("data-copy", commands.join("\n"));
}
