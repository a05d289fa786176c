"""Server that shows a folder of models in the browser: rules are edited and run there."""
