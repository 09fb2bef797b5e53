console.log(`Node ${process.versions.node.split(".")[0]} in ${process.cwd() === process.env.HOME ? "home" : "project"}`);
