// Counts its visits in memory, with nothing but Node itself.
const http = require("node:http");

let visits = 0;
http
  .createServer((request, response) => {
    visits += 1;
    response.setHeader("Content-Type", "application/json");
    response.end(JSON.stringify({ visits, pid: process.pid, now: Date.now() / 1000 }));
  })
  .listen(process.env.PORT, () => console.log(`listening on ${process.env.PORT}`));
