"""What is reported: problems of a project, status of a skill, selections, untrusted folders."""
