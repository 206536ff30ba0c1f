"""How each token provider gets an access token for OAUTHBEARER; `clusters.oauth_tokens` keeps and renews them."""
