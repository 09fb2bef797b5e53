"""Where goals are remembered: one engine each, behind `base`. Only `dbos` knows dbos, and so on."""
