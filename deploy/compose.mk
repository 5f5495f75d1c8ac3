.PHONY: images compose-test

images: ## builds all images of the compose deployment
	docker compose build 2>/dev/null || docker-compose build

compose-test: setup ## builds, starts, tests and ends the compose deployment from a clean clone
	@$(RUN) deploy/compose_test.py
