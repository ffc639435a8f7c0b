const express = require("express");
const fs = require("node:fs");

const app = express();
let visits = 0;
app.get("/", (request, response) => response.json({ visits: ++visits, build: fs.readFileSync("built.txt", "utf8") }));
app.listen(process.env.PORT);
